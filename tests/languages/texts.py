"""Every English text that has a translation, from the sources, and the catalogues in step with them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from babel.messages.catalog import Catalog
from babel.messages.extract import extract
from babel.messages.pofile import read_po, write_po
from jinja2.ext import extract_from_ast

from stepwatch.alerts.table import FACTS, TABLE
from stepwatch.config.deployment import InContainers
from stepwatch.languages import ENGLISH, LANGUAGES, Catalogue, file
from stepwatch.render import generator, templates
from stepwatch.render.dashboard import assemble
from stepwatch.render.dashboard_texts import translated
from stepwatch.rules import messages
from stepwatch.rules.messages import FAILURES
from stepwatch.rules.subjects import SUBJECTS
from stepwatch.system.environment import CHECKOUT
from tests.rules import rendered

HEADER = 'msgid ""\nmsgstr ""\n"Language: {}\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
CALLS = ("translate", "Text")
"""What is called with a text: ``translate("...")``; in services ``Text("...")``."""

ACTING = {"policies": [{"on": "KLExplosion", "do": ["notify"]}]}
"""Dashboards have marks of actions only where there are some."""

Origins = dict[str, set[str]]


class Recorder(Catalogue):
    """Notes each text that it is asked for, with the file that it is from."""

    def __init__(self, origins: Origins) -> None:
        super().__init__({"": ""})
        self.origins, self.file = origins, ""

    def within(self, _: str) -> Recorder:
        return self

    def __call__(self, text: str, /, **parts: object) -> str:
        self.origins.setdefault(text, set()).add(self.file)
        return super().__call__(text, **parts)


def collected(root: Path = CHECKOUT) -> Origins:
    """Return the files of each English text: of alerts, dashboards, notifications and services."""
    recorder = Recorder({})
    for alert in TABLE:
        recorder.file = f"stepwatch/alerts/{alert.source}.yaml"
        alert.translated(recorder)
    recorder.file = "stepwatch/alerts/facts.yaml"
    for fact in FACTS.values():
        recorder(fact.text)
    recorder.file = "docs/runbook.md"
    book = messages.entries(root / recorder.file)
    shown = [alert.name for alert in TABLE if alert.subject == "run" and alert.name in book]
    for name in shown:
        for text in book[name]:
            recorder(text)
    recorder.file = "stepwatch/rules/subjects.py"
    for subject in SUBJECTS.values():
        recorder(subject.who)
    recorder.file = "stepwatch/rules/messages.py"
    for text in FAILURES:
        recorder(text)
    _record_dashboards(recorder, root)
    for path, text in _called(root):
        recorder.file = path
        recorder(text)
    return recorder.origins


def _record_dashboards(recorder: Recorder, root: Path) -> None:
    settings = {**rendered.EVERYTHING, "actions": ACTING}
    for role in ("all", "hub"):  # a hub's let choose a cluster
        _record_those_of(recorder, root, {**settings, "role": role})


def _record_those_of(recorder: Recorder, root: Path, settings: Mapping[str, object]) -> None:
    context = generator._context(rendered.config(settings), lambda _: InContainers())
    for path in sorted((root / templates.DASHBOARDS).glob(f"*{templates.DASHBOARD_SUFFIX}")):
        recorder.file = path.relative_to(root).as_posix()
        document = templates.template(root, context, PurePosixPath(recorder.file))
        translated(document, recorder)
        assemble(document, context["lines"], recorder)


def _called(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts that sources call for, each with its file."""
    jinja, keywords = templates.environment(root, {}), dict.fromkeys(CALLS)
    services = ("exporter/*.py", "exporter/runs/*.py", "exporter/bridge/*.py")
    for pattern in ("stepwatch/**/*.py", *services, "*/templates/**/*.j2"):
        for path in sorted(root.glob(pattern)):
            source = path.read_text()
            if not any(f"{call}(" in source for call in CALLS):  # which is most, and to parse takes seconds
                found = []
            elif path.suffix == ".py":
                found = [text for _, text, _, _ in extract("python", io.BytesIO(source.encode()), keywords)]
            else:
                found = [text for _, _, text in extract_from_ast(jinja.parse(source), CALLS)]
            for text in found:
                yield path.relative_to(root).as_posix(), text if isinstance(text, str) else text[0]


def written(language: str, origins: Mapping[str, set[str]], present: bytes) -> bytes:
    """Return a catalogue with an entry for each text, in the order of their files, empty where it is new."""
    before = {(each.id, each.context): each.string for each in read_po(io.BytesIO(present)) if not each.fuzzy}
    catalog = Catalog(language)
    for text in sorted(origins, key=lambda text: min(origins[text])):
        sources = {PurePosixPath(path).name.partition(".")[0]: path for path in sorted(origins[text])}
        catalog.add(text, before.get((text, None), ""), [(path, 0) for path in sorted(origins[text])])
        for source, path in sources.items():
            if (text, source) in before:
                catalog.add(text, before[text, source], [(path, 0)], context=source)
    for each in catalog:
        each.flags.clear()
    made = io.BytesIO()
    write_po(made, catalog, width=0, omit_header=True, include_lineno=False)
    return HEADER.format(language).encode() + made.getvalue()


def update() -> int:
    """Write the catalogues. Returns how many texts lack their translation."""
    origins, missing = collected(), 0
    for language in LANGUAGES:
        if language == ENGLISH:
            continue
        path = file(language)
        path.write_bytes(written(language, origins, path.read_bytes() if path.exists() else b""))
        for each in read_po(io.BytesIO(path.read_bytes())):
            if each.id and not each.string:
                missing += 1
                print(f"{path.relative_to(CHECKOUT)}: no translation of {each.id!r}")
    return missing
