"""`python -m stepwatch import-dashboard`: a dashboard edited in Grafana becomes a template of the user's own.

The template has Grafana's classic model as it is, with our data source, and a uid and a title of its own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import yaml

from exporter.installation import adapt
from stepwatch.config.yaml_document import MAX_DEPTH, parse
from stepwatch.render import layout, output
from stepwatch.render.dashboard import PROMETHEUS, Json
from stepwatch.render.templates import DASHBOARD_SUFFIX
from stepwatch.schema.errors import ConfigError, Problem, quoted, refusal
from stepwatch.system.terminal import Say

LARGEST_BYTES = 4 * 1024**2

OUR_UIDS = "stepwatch-"
"""What the uids of our dashboards begin with."""

_OF_GRAFANA = {"id", "version", "iteration"}
"""About the record in Grafana's database. Keys that begin with two underscores are about an export."""

_CLASSIC = "the classic model of a dashboard, as Grafana exports it"
_EXPORT = 'export it again as JSON with the model "Classic", "Export for sharing externally" off'

_HEADER = """\
# A dashboard of your own, imported from Grafana: its classic model. `make up` renders this file.
# To change it, edit it here; or edit a copy in Grafana, and import that.

"""

# Words that YAML reads as themselves. All other texts are quoted.
_WORD = re.compile(r"(?!(?i:on|off|yes|no|true|false|null|y|n)$)[A-Za-z_][A-Za-z0-9_-]*")


def import_dashboard(file: Path, config: Path, title: str | None, say: Say, *, force: bool = False) -> int:
    """Write the template of an exported dashboard beside the configuration file.

    Args:
        file: JSON of Grafana: an export, or what its HTTP API returned.
        config: The configuration file that is rendered together with it.
        title: The title that it gets; None for its own, followed by `(own)` if it is one of ours.
        say: What prints a line.
        force: Whether to replace a template of that name.

    Raises:
        Refused: The file is not a dashboard in the classic form, or the template exists.
    """
    document = _classic(str(file), _read(file))
    try:
        name, dashboard = own(document, title)
        text = template(dashboard)
    except RecursionError:
        says = f"the nesting is deeper than {MAX_DEPTH} levels"
        raise refusal(str(file), says, expected=_CLASSIC, fix=_EXPORT) from None
    _require_readable(text, str(file))
    folder = layout.own_dashboards(config)
    path = folder / f"{name}{DASHBOARD_SUFFIX}"
    if path.exists() and not force:
        raise refusal(
            str(path),
            "the file exists already",
            expected="a new dashboard, or --force",
            fix="add --title TEXT to keep the file, --force to replace it",
        )
    uid = re.compile(rf"^uid: [\"']?{re.escape(dashboard['uid'])}[\"']?$", re.MULTILINE)
    for other in sorted(folder.glob(f"*{DASHBOARD_SUFFIX}")):
        if other != path and uid.search(other.read_text(encoding="utf-8", errors="replace")):
            raise refusal(
                str(other),
                f"has the uid of {file} ({dashboard['uid']})",
                expected="one template per uid",
                fix="delete the template that you no longer need; or change the uid of one",
            )
    output.replace_file(path, text.encode())
    say(f"Wrote {path}: dashboard {quoted(dashboard['title'])}, uid {dashboard['uid']}.")
    say("`make up` shows it in Grafana, in the folder Stepwatch.")
    return 0


def own(dashboard: Json, title: str | None = None) -> tuple[str, Json]:
    """Return the name of a dashboard's template, and the dashboard with our data source.

    It has a uid and a title of the user's own, and nothing of Grafana's record.
    """
    uid = dashboard.get("uid") or ""
    ours = uid.startswith(OUR_UIDS)
    title = title or (f"{dashboard['title']} (own)" if ours else dashboard["title"])
    if not (title.isascii() and (name := _slug(title))):
        name = f"{_slug(uid.removeprefix(OUR_UIDS)) or 'dashboard'}-own"
    kept = {key: value for key, value in dashboard.items() if key not in _OF_GRAFANA and key[:2] != "__"}
    return name, _with_our_source({**kept, "uid": name if ours or not uid else uid, "title": title})


def template(dashboard: Json) -> str:
    """Return the text of a template that renders to exactly this dashboard."""
    text = yaml.dump(dashboard, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=10**9)
    # Jinja sees no delimiter, YAML reads the same: only texts in double quotes have this (see `_Dumper`).
    return adapt(_HEADER) + text.replace("<%", r"\x3C%")


class _Dumper(yaml.SafeDumper):
    """Words plain, texts of several lines as blocks, all others in double quotes."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  (PyYAML's own signature)
        return True

    def text(self, data: str) -> yaml.ScalarNode:
        plain = _WORD.fullmatch(data)
        block = "\n" in data and "<%" not in data
        return self.represent_scalar(
            "tag:yaml.org,2002:str", data, style=None if plain else "|" if block else '"'
        )


_Dumper.add_representer(str, _Dumper.text)


def _require_readable(text: str, file: str) -> None:
    """Check what a template must not hold: control characters, endless numbers, too many levels or values."""
    try:
        problems = parse(text, file).problems
    except ConfigError as error:
        problems = error.problems
    if problems:
        # Lines are those of the template, which is not written.
        raise ConfigError(file, [Problem(None, problem.fault) for problem in problems])


def _slug(text: str) -> str:
    """Return a text as the name of a file, and as a uid: Grafana's have at most 40 characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")


def _read(file: Path) -> Any:
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise refusal(
            str(file),
            f"the file cannot be read ({error.strerror})",
            expected="a JSON file that Grafana exported",
            fix="check path and permissions",
        ) from error
    if len(content) > LARGEST_BYTES:
        raise refusal(
            str(file),
            f"the file has more than {LARGEST_BYTES} bytes",
            expected="a dashboard",
            fix="export one dashboard, without a snapshot of its data",
        )
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise refusal(
            str(file),
            f"the text is not JSON ({error.msg})",
            expected=_CLASSIC,
            fix=_EXPORT,
            line=error.lineno,
        ) from error


def _classic(file: str, document: Any) -> Json:
    """Return the classic model, out of what Grafana's APIs wrap around it.

    Raises:
        Refused: There is none.
    """
    found = document if isinstance(document, dict) else {}
    resource, answer = found.get("spec"), found.get("dashboard")
    if isinstance(resource, dict):
        metadata = found.get("metadata")
        found = {**resource, "uid": metadata.get("name") if isinstance(metadata, dict) else None}
    elif isinstance(answer, dict):
        found = answer
    if "elements" in found:
        raise refusal(file, "the dashboard is in Grafana's v2 form", expected=_CLASSIC, fix=_EXPORT)
    panels, title, uid = found.get("panels"), found.get("title"), found.get("uid")
    if not isinstance(panels, list) or not all(isinstance(panel, dict) for panel in panels):
        raise refusal(file, "has no list `panels`", expected=_CLASSIC, fix=_EXPORT)
    if not isinstance(title, str) or not title.strip() or not isinstance(uid, str | None):
        raise refusal(file, "has no `title`, or a `uid` that is not text", expected=_CLASSIC, fix=_EXPORT)
    inputs = [each for each in found.get("__inputs") or [] if isinstance(each, dict)]
    if asked := [each.get("name") for each in inputs if each.get("pluginId") != PROMETHEUS["type"]]:
        says = f"asks for values that only an import in Grafana can give ({asked[0]})"
        raise refusal(file, says, expected=_CLASSIC, fix=_EXPORT)
    return found


def _with_our_source(part: Any) -> Any:
    """Return a part of a dashboard in which what asks a Prometheus asks ours, and lines end as YAML's do."""
    if isinstance(part, str):
        return part.replace("\r\n", "\n")
    if isinstance(part, list):
        return [_with_our_source(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: PROMETHEUS if key == "datasource" and _is_prometheus(value) else _with_our_source(value)
        for key, value in part.items()
    }


def _is_prometheus(source: Any) -> bool:
    """Return whether a reference is to a Prometheus; a bare name is, unless it is one of Grafana's own."""
    if isinstance(source, dict):
        uid = str(source.get("uid", ""))
        return source.get("type", PROMETHEUS["type"]) == PROMETHEUS["type"] and not uid.startswith("-- ")
    return isinstance(source, str) and not source.startswith("-- ")
