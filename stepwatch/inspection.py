"""``python -m stepwatch inspect``: what the run exporter reads of logs, file by file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.runs import discover
from exporter.runs.discover import Found
from exporter.runs.health import Health
from exporter.runs.log import Log
from exporter.runs.names import printable
from exporter.runs.raw import RawRule
from exporter.runs.readers.follow import LAST_LINE_SECONDS
from exporter.runs.run import Options, Run
from exporter.runs.statefile import StateFolder
from stepwatch.config import Config
from stepwatch.tables import Say

NOT_READ = {
    "empty": "empty",
    "binary": "no text",
    "document": "JSON without a history of steps",
    "text": "no record of a trainer",
    "no_records": "no record of a trainer",
    "compressed": "no record of a trainer",
    "events": "no event",
    "log": "a table without a row so far",
}
"""What a file is that no run was found in."""

HEAD = ("file", "framework", "format", "runs", "records", "steps", "signals", "keys without a signal")
EVERYTHING = 10**6


@dataclass(frozen=True, slots=True)
class Row:
    """What was found in one file; ``problem`` if nothing was."""

    file: str
    framework: str = ""
    format: str = ""
    runs: int = 0
    records: int = 0
    steps: str = ""
    signals: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    problem: str = ""


def inspect(paths: Sequence[Path], config: Config, say: Say, *, markdown: bool) -> int:
    """Tell what is read of each file.

    Returns:
        0 if runs were found, 1 if none were.
    """
    options = Options(keys=config.signals, raw=RawRule(limit=EVERYTHING))
    if markdown:
        say(f"| {' | '.join(HEAD)} |")
        say(f"|{'---|' * len(HEAD)}")
    found = 0
    for file in discover.files([str(path) for path in paths]):
        row = read(file, options)
        found += row.runs
        for line in [_cells(row)] if markdown else _lines(row):
            say(line)
    if not found and not markdown:
        say(f"No run below {', '.join(map(str, paths))}. docs/formats.md lists what is understood.")
    return 0 if found else 1


def read(file: Found, options: Options) -> Row:
    """Read a file to its end, as a log of its own."""
    name = printable(file.relative)
    log = Log(file, StateFolder(None), Health(), options)
    try:
        while log.more:
            log.read(time.time(), time.monotonic())
        log.read(time.time() + LAST_LINE_SECONDS, time.monotonic())
    except OSError as error:
        return Row(name, problem=f"cannot be read: {error.strerror}")
    runs = list(log.roster.runs.values()) if log.roster else []
    return _row(name, runs) if runs else Row(name, problem=NOT_READ.get(log.kind, log.kind))


def _row(name: str, runs: list[Run]) -> Row:
    steps = [(run.progress.first or 0, run.progress.highest) for run in runs]
    signals = {signal for run in runs for signal in run.latest}
    parts = {signal for run in runs for signal, _ in run.parts}
    return Row(
        name,
        runs[0].reading.framework,
        runs[0].source,
        len(runs),
        sum(run.records for run in runs),
        f"{min(first for first, _ in steps)}-{max(last for _, last in steps)}",
        tuple(sorted(signals | parts)),
        tuple(sorted({key for run in runs for key in run.raw.values(run.reading)})),
    )


def _lines(row: Row) -> Iterator[str]:
    if row.problem:
        yield f"{row.file}: {row.problem}"
        return
    several = f"{row.runs} runs, " if row.runs > 1 else ""
    yield f"{row.file}: {row.framework} ({row.format}), {several}{row.records} records, steps {row.steps}"
    yield f"    signals: {', '.join(row.signals) or 'none'}"
    if row.others:
        yield f"    without a signal: {', '.join(row.others)}"


def _cells(row: Row) -> str:
    if row.problem:
        return f"| {row.file} | {row.problem} |{' |' * (len(HEAD) - 2)}"
    texts = (row.framework, row.format, str(row.runs), str(row.records), row.steps)
    return f"| {row.file} | {' | '.join(texts)} | {', '.join(row.signals)} | {_few(row.others)} |"


def _few(keys: tuple[str, ...], most: int = 12) -> str:
    """The first keys, and how many more there are: some trainers log hundreds."""
    shown = ", ".join(f"`{key}`" for key in keys[:most]).replace("|", "\\|")
    return f"{shown} and {len(keys) - most} more" if len(keys) > most else shown
