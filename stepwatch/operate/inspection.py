"""``python -m stepwatch inspect``: what the run exporter reads of logs and pages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.runs.logs import find
from exporter.runs.logs.find import Found
from exporter.runs.logs.grouping import STATE_FILE
from exporter.runs.logs.names import printable, run_names
from exporter.runs.model.raw_keys import RawRule
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.model.run_set import RunSet
from exporter.runs.remote.page import Page
from exporter.runs.remote.web import PollError
from exporter.runs.signals.candidates import Candidate
from exporter.secret_shapes import masked_url
from stepwatch.config import Config
from stepwatch.operate import logfiles
from stepwatch.operate.logfiles import UnreadError
from stepwatch.system.terminal import Say

NO_STEP = "no step yet: it has no metric of a trainer, or none of them was set so far"
LATER = "means of histograms and summaries come with the next step"
HEAD = ("file", "framework", "format", "runs", "records", "steps", "signals", "keys without a signal")
EVERYTHING = 10**6


@dataclass(frozen=True, slots=True)
class Contents:
    """What one log or page holds: ``runs`` by what it calls them, or the ``problem`` if there are none.

    ``place`` is the log below the watched folder, or the page; ``origin`` says which files were read.
    """

    place: str
    origin: str = ""
    runs: Mapping[str, Run] = field(default_factory=dict)
    problem: str = ""
    log: Found | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """What one run is, or all runs of one file together."""

    framework: str
    format: str
    runs: int
    records: int
    steps: str
    signals: tuple[str, ...]
    others: tuple[str, ...]


MOST_SOURCES = 6
"""Keys listed for one signal: a validation score may be the mean over many data sets."""


def inspect(places: Sequence[str], config: Config, say: Say, *, markdown: bool) -> int:
    """Tell what is read of logs, folders of logs and Prometheus pages.

    People get each run as the stack names it; with ``markdown`` each file is a row of a table.

    Returns:
        0 if runs were found, 1 if none were.
    """
    options = Options(keys=config.signals, raw=RawRule(limit=EVERYTHING))
    paths = [place for place in places if not _is_url(place)]
    logs = find.files(paths) if markdown else logfiles.logs(paths, config.runs.path)[0]
    contents = [_read(log, options) for log in logs]
    contents += [_poll(_page(place, config), options) for place in places if _is_url(place)]
    for line in _table(contents) if markdown else _blocks(contents):
        say(line)
    found = any(each.runs for each in contents)
    if not found and not markdown:
        shown = (masked_url(place) if _is_url(place) else place for place in places)
        say(
            f"No run in {', '.join(shown)}. docs/formats.md lists what is understood. "
            "Fix: name logs or their folder: `make inspect RUNS=/path/to/logs`"
        )
    return 0 if found else 1


def _is_url(place: str) -> bool:
    return "://" in place


def _read(found: Found, options: Options) -> Contents:
    """Read a log to its end, as one of its own."""
    place = printable(found.relative)
    try:
        roster = logfiles.read(found, options)
    except UnreadError as problem:
        return Contents(place, problem=str(problem))
    return Contents(place, _origin(found), roster.runs, log=found)


def _origin(found: Found) -> str:
    """The files of a log, as paths below the watched folder."""
    folder = found.path.parents[len(found.relative.parts) - 1]
    files = [printable(part.relative_to(folder)) for part in found.parts]
    if found.path.name == STATE_FILE and len(files) > 1:
        return f"{files[-1]} (newest of {len(files)})"
    return _few(files, most=3)


def _page(url: str, config: Config) -> Page:
    """The page, with what the configuration says of it."""
    known = next((page for page in config.runs.pages if page.url == url), None)
    return Page(url, known.run, known.step) if known else Page(url)


def _poll(page: Page, options: Options) -> Contents:
    """Ask a page once."""
    roster = RunSet(page.source, "", options)
    try:
        for event in page.poll():
            roster.take(event, Clock(time.time(), time.monotonic(), live=False))
    except PollError as error:
        return Contents(page.name, problem=str(error).removeprefix(f"{page.name} "))
    if not roster.runs:
        return Contents(page.name, problem=NO_STEP)
    return Contents(page.name, f"{page.name} ({LATER})", roster.runs)


def _row(runs: Sequence[Run]) -> Row:
    first = min(run.progress.first or 0 for run in runs)
    last = max(run.progress.highest for run in runs)
    signals = {signal for run in runs for signal in run.latest}
    parts = {signal for run in runs for signal, _ in run.parts}
    return Row(
        runs[0].reading.framework,
        runs[0].source,
        len(runs),
        sum(run.records for run in runs),
        f"{first}-{last}",
        tuple(sorted(signals | parts)),
        tuple(sorted({key for run in runs for key in _others(run)})),
    )


def _others(run: Run) -> set[str]:
    """The keys that no signal was read from, alone or with others."""
    read = {key for keys in run.raw.sources(run.reading).values() for key in keys}
    return run.raw.values(run.reading).keys() - read


def _blocks(contents: Sequence[Contents]) -> Iterator[str]:
    """Each run under its name, and what is not a run."""
    logs = [each.log for each in contents if each.log]
    names = run_names({log.path: log.relative for log in logs})
    for each in contents:
        if each.problem:
            yield f"{each.place}: {each.problem}"
        name = names[each.log.path] if each.log else ""
        for key, run in each.runs.items():
            yield from _block("/".join(filter(None, (name, key))), run, each.origin)


def _block(name: str, run: Run, origin: str) -> Iterator[str]:
    row = _row([run])
    steps = f"{row.records} records, steps {row.steps}"
    if row.records == 1:
        steps = f"1 record, step {row.steps.partition('-')[0]}"
    yield f"{name}: {row.framework} ({row.format}), {steps}"
    yield f"    read from: {origin}"
    yield f"    signals:{'' if row.signals else ' none'}"
    read_from = run.raw.sources(run.reading)
    for signal in row.signals:
        keys = _few(read_from.get(signal, _parts(run, signal)), most=MOST_SOURCES)
        yield f"      {signal}: {keys}"
    if row.others:
        yield f"    without a signal: {', '.join(row.others)}"
    yield from _advice(run.candidates())


def _parts(run: Run, signal: str) -> tuple[str, ...]:
    """The names of the parts of a signal that is logged once for each."""
    return tuple(sorted(part for of, part in run.parts if of == signal))


def _advice(candidates: Sequence[Candidate]) -> Iterator[str]:
    if candidates:
        yield "    may carry a signal that the run lacks. Put the lines that are right into config.yaml,"
        yield "    in place of `signals: {}` or below your own `signals:`, and run `make up`:"
        yield "signals:"
        yield from (f"  {candidate.setting}" for candidate in candidates)


def _table(contents: Iterable[Contents]) -> Iterator[str]:
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{'---|' * len(HEAD)}"
    for each in contents:
        yield f"| {each.place} | {_cells(each)}"


def _cells(contents: Contents) -> str:
    if contents.problem:
        return f"{contents.problem} |{' |' * (len(HEAD) - 2)}"
    row = _row(list(contents.runs.values()))
    texts = (row.framework, row.format, str(row.runs), str(row.records), row.steps)
    others = _few([f"`{key}`" for key in row.others], most=12).replace("|", "\\|")
    return f"{' | '.join(texts)} | {', '.join(row.signals)} | {others} |"


def _few(texts: Sequence[str], most: int) -> str:
    """The first ones, and how many more there are: some trainers log hundreds of keys."""
    shown = ", ".join(texts[:most])
    return f"{shown} and {len(texts) - most} more" if len(texts) > most else shown
