"""``python -m stepwatch inspect``: what the run exporter reads from logs and pages."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.runs.logs import find
from exporter.runs.logs.find import Found
from exporter.runs.logs.names import STATE_FILE, printable, run_names
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.model.run_set import RunSet
from exporter.runs.pages.page import Page
from exporter.runs.pages.web import PollError
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.unmapped import RawRule
from exporter.secret_shapes import masked_url
from stepwatch.config import Config
from stepwatch.operate import logfiles
from stepwatch.operate.logfiles import UnreadError
from stepwatch.system.terminal import Say

NO_STEP = "no step yet: it has no metric of a trainer, or none of them was set so far"
LATER = "means of histograms and summaries come with the next step"
HEAD = ("file", "framework", "format", "runs", "records", "steps", "signals", "keys without a signal")
EVERYTHING = 10**6
MOST_SOURCES = 6  # keys listed for one signal: a validation score may be the mean over many data sets


@dataclass(frozen=True, slots=True)
class Contents:
    """What one log or page holds: ``runs`` by what it calls them, or the ``problem`` if there are none."""

    place: str
    origin: str = ""
    runs: Mapping[str, Run] = field(default_factory=dict)
    problem: str = ""
    log: Found | None = None


class Summary(NamedTuple):
    """What one run is, or all runs of one file together."""

    framework: str
    format: str
    runs: int
    records: int
    steps: str
    signals: Sequence[str]
    others: Sequence[str]

    @classmethod
    def of(cls, runs: Collection[Run]) -> Summary:
        """Of these runs, at least one; ``others`` are the keys that no signal was read from."""
        signals, others = set(), set()
        for run in runs:
            read = {key for keys in run.reading.sources().values() for key in keys}
            others |= run.raw.values().keys() - read
            signals |= {*run.latest, *(signal for signal, _ in run.parts)}
        first = next(iter(runs))
        lowest = min(run.progress.first or 0 for run in runs)
        return cls(
            first.reading.framework,
            first.source,
            len(runs),
            sum(run.records for run in runs),
            f"{lowest}-{max(run.progress.highest for run in runs)}",
            sorted(signals),
            sorted(others),
        )


def inspect(places: Sequence[str], config: Config, say: Say, *, markdown: bool) -> int:
    """Report what is read from logs, folders of logs and pages. Returns 0 if runs were found, else 1."""
    options = Options(keys=keys_of(config.signals), raw=RawRule(limit=EVERYTHING))
    paths = [place for place in places if "://" not in place]
    logs = find.files(paths) if markdown else logfiles.logs(paths, config.runs.path)[0]
    pages = {page.url: Page(page.url, page.run, page.step) for page in config.runs.pages}
    contents = [_read(log, options) for log in logs]
    contents += [_poll(pages.get(url) or Page(url), options) for url in places if "://" in url]
    for line in _table(contents) if markdown else _blocks(contents):
        say(line)
    found = any(each.runs for each in contents)
    if not found and not markdown:
        shown = (masked_url(place) if "://" in place else place for place in places)
        say(
            f"No run in {', '.join(shown)}. docs/formats.md lists the supported formats. Fix: name logs or "
            "their folder: `make inspect RUNS=/path/to/logs`"
        )
    return 0 if found else 1


def _read(found: Found, options: Options) -> Contents:
    """Read a log to its end; its files are named by their paths below the watched folder."""
    place = printable(found.relative)
    try:
        runs = logfiles.read(found, options).runs
    except UnreadError as problem:
        return Contents(place, problem=str(problem))
    folder = found.path.parents[len(found.relative.parts) - 1]
    files = [printable(part.relative_to(folder)) for part in found.parts]
    newest_only = found.path.name == STATE_FILE and len(files) > 1
    origin = f"{files[-1]} (newest of {len(files)})" if newest_only else _few(files, most=3)
    return Contents(place, origin, runs, log=found)


def _poll(page: Page, options: Options) -> Contents:
    """Request a page once."""
    run_set = RunSet(page.source, "", options)
    try:
        for event in page.read():
            run_set.take(event, Clock(time.time(), time.monotonic(), live=False))
    except PollError as error:
        return Contents(page.name, problem=str(error).removeprefix(f"{page.name} "))
    if not run_set.runs:
        return Contents(page.name, problem=NO_STEP)
    return Contents(page.name, f"{page.name} ({LATER})", run_set.runs)


def _blocks(contents: Sequence[Contents]) -> Iterator[str]:
    """Each run under its name, and what is not a run."""
    names = run_names({each.log.path: each.log.relative for each in contents if each.log})
    for each in contents:
        if each.problem:
            yield f"{each.place}: {each.problem}"
        name = names[each.log.path] if each.log else ""
        for key, run in each.runs.items():
            yield from _block("/".join(filter(None, (name, key))), run, each.origin)


def _block(name: str, run: Run, origin: str) -> Iterator[str]:
    summary = Summary.of([run])
    steps = f"{run.records} records, steps {summary.steps}"
    if run.records == 1:
        steps = f"1 record, step {summary.steps.partition('-')[0]}"
    yield f"{name}: {summary.framework} ({summary.format}), {steps}"
    yield f"    read from: {origin}"
    yield f"    signals:{'' if summary.signals else ' none'}"
    read_from = run.reading.sources()
    for signal in summary.signals:
        # A signal that is logged once for each of its parts has their names.
        keys = read_from.get(signal) or sorted(part for of, part in run.parts if of == signal)
        yield f"      {signal}: {_few(keys, most=MOST_SOURCES)}"
    if summary.others:
        yield f"    without a signal: {', '.join(summary.others)}"
    if candidates := run.candidates():
        yield "    may carry a signal that the run lacks. Add the correct lines to config.yaml,"
        yield "    in place of `#signals: ...`, or below your own `signals:`, and run `make up`:"
        yield "signals:"
        yield from (f"  {candidate.setting}" for candidate in candidates)


def _table(contents: Sequence[Contents]) -> Iterator[str]:
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{'---|' * len(HEAD)}"
    for each in contents:
        if each.problem:
            yield f"| {each.place} | {each.problem} |{' |' * (len(HEAD) - 2)}"
            continue
        *texts, signals, keys = Summary.of(each.runs.values())
        others = _few([f"`{key}`" for key in keys], most=12).replace("|", "\\|")
        yield f"| {' | '.join(map(str, (each.place, *texts)))} | {', '.join(signals)} | {others} |"


def _few(texts: Sequence[str], most: int) -> str:
    """The first ones, and how many more there are: some trainers log hundreds of keys."""
    shown = ", ".join(texts[:most])
    return f"{shown} and {len(texts) - most} more" if len(texts) > most else shown
