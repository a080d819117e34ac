"""Logs to samples: what the run exporter would have served at each record, a second apart, as OpenMetrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from exporter.http.exposition import escape, number
from exporter.runs.logs.find import Found
from exporter.runs.logs.names import printable, run_names
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.model.run_set import RunSet
from exporter.runs.serve.metrics import LABELS, latest, progress, statistics
from exporter.runs.signals.record import Event, Record
from exporter.runs.stats.catalogue import JUDGED
from stepwatch.backtest.server import START, Tick
from stepwatch.operate import logfiles

MISSING = "no such file or folder"
EMPTY = "no log found in it. Fix: name logs or their folder: `make backtest RUNS=/path/to/logs`"

SAMPLES = ".samples"
"""How the names of the files of samples end."""

REPEAT_SECONDS = 240
"""A value that stays is written again: Prometheus takes a sample to be valid for five minutes."""

GONE = math.nan
"""Value of a statistic that no longer exists (a resume clears the windows): every comparison is false."""


class Replayed(NamedTuple):
    """A run that was written: the ``steps`` of its records, and its ``signals`` that rules look at."""

    run: str
    files: tuple[str, ...]
    format: str
    steps: tuple[int, ...]
    signals: tuple[str, ...]


@dataclass(frozen=True)
class Unjudged:
    """A file or folder that could not be judged, and why."""

    run: str
    files: tuple[str, ...]
    error: str


Replays = tuple[Replayed, ...] | Unjudged
"""The runs of one log, or why there are none."""


@dataclass(frozen=True)
class Logs:
    """The logs that users named: ``found`` by the name of their run, ``missing`` paths that hold none.

    ``asked`` are the files that were named themselves: that there is no run in one is an error.
    """

    found: tuple[tuple[str, Found], ...]
    missing: tuple[Unjudged, ...]
    asked: frozenset[Path]


def find(paths: Sequence[str], watched: Path) -> Logs:
    """Return the logs in these files, folders and globs."""
    found, bare = logfiles.logs(paths, watched)
    names = run_names({log.path: log.relative for log in found})
    missing = tuple(
        Unjudged(printable(path), (printable(path),), EMPTY if path.exists() else MISSING)
        for path in map(Path, bare)
    )
    asked = frozenset(path.absolute() for path in map(Path, paths) if path.is_file())
    return Logs(tuple((names[log.path], log) for log in found), missing, asked)


def replay(
    logs: Logs, metrics: Collection[str], options: Options, folder: Path, *, jobs: int, tick: Tick
) -> Iterator[Replays]:
    """Write the samples of these metrics into files of a folder, and yield what each log held, in order.

    ``options`` say how logs are read; ``jobs`` are read at once.
    """
    work = partial(_replay, metrics=metrics, options=options, folder=folder, asked=logs.asked)
    numbered = list(enumerate(logs.found))
    with ExitStack() as stack:
        several = jobs > 1 and len(numbered) > 1
        done = stack.enter_context(ProcessPoolExecutor(jobs)).map if several else map
        for each in done(work, numbered):
            tick()
            yield each


def _replay(
    log: tuple[int, tuple[str, Found]],
    metrics: Collection[str],
    options: Options,
    folder: Path,
    asked: frozenset[Path],
) -> Replays:
    index, (name, found) = log
    samples = folder / f"{index}{SAMPLES}"
    try:
        return write(found, name, metrics, options, samples)
    except logfiles.UnreadError as problem:
        samples.unlink()
        asked_for = not asked.isdisjoint(part.absolute() for part in found.parts)
        if isinstance(problem, logfiles.NoRunError) and not asked_for:
            return ()
        return Unjudged(name, tuple(map(printable, found.parts)), str(problem))


def write(
    found: Found, name: str, metrics: Collection[str], options: Options, out: Path
) -> tuple[Replayed, ...]:
    """Write the samples of a log's runs, of these metrics only; record k (from 1) at ``START`` + k.

    Raises:
        UnreadError: it contains no run.
    """
    with out.open("w", encoding="utf-8") as samples:
        writers: dict[str, _Writer] = {}
        begin = partial(_Writer, name, frozenset(metrics), samples)
        logfiles.read(found, options, partial(_Recorder, writers, begin))
        for writer in writers.values():
            if writer.steps:
                writer.write()
    files = tuple(map(printable, found.parts))
    return tuple(
        Replayed(
            writer.name,
            files,
            writer.run.source,
            tuple(writer.steps),
            tuple(signal for signal in writer.run.latest if signal in JUDGED),
        )
        for writer in writers.values()
    )


class _Writer:
    """Writes the samples of one run. What is logged of one step in a row is one record of it."""

    def __init__(self, log: str, metrics: Collection[str], out: TextIO, name: str, run: Run) -> None:
        self.name, self.run = "/".join(filter(None, (log, name))), run
        self.steps: list[int] = []
        self._label = f'run="{escape(self.name)}"'
        self._metrics = metrics
        self._out = out
        self._written: dict[str, tuple[float, int]] = {}
        self._series = {
            statistic: f"{statistic.metric}{{{self._label}{labels}}}"
            for statistic, labels in LABELS.items()
            if statistic.metric in metrics
        }

    def write(self) -> None:
        """Write what is served after the last record, as far as it has changed."""
        now = START + len(self.steps)
        served = {
            f"{metric}{{{self._label}}}": value
            for metric, value in (*progress(self.run), *latest(self.run))
            if metric in self._metrics
        }
        served |= {self._series[each]: value for each, value in statistics(self.run) if each in self._series}
        for series, value in served.items():
            before, since = self._written.get(series, (None, 0))
            if value != before or now - since >= REPEAT_SECONDS:
                self._out.write(f"{series} {number(value)} {now}\n")
                self._written[series] = (value, now)
        for series in self._written.keys() - served.keys():
            self._out.write(f"{series} {number(GONE)} {now}\n")
            del self._written[series]


class _Recorder(RunSet):
    """The runs of a log; each record is written before the next one of another step is taken."""

    def __init__(
        self, writers: dict[str, _Writer], begin: Callable[[str, Run], _Writer], *about: Any, **known: Any
    ) -> None:
        super().__init__(*about, **known)
        self._writers, self._begin_writer = writers, begin

    def take(self, event: Event, clock: Clock) -> None:
        if not isinstance(event, Record):
            super().take(event, clock)
            return
        writer = self._writers.get(event.run)
        if writer and writer.steps and writer.steps[-1] != event.step:
            writer.write()
        super().take(event, clock)
        writer = self._writers.get(event.run)
        if writer and writer.steps[-1:] != [event.step]:
            writer.steps.append(event.step)

    def _begin(self, name: str) -> Run:
        run = super()._begin(name)
        run.watched = True  # so that the rules' statistics are served
        self._writers[name] = self._begin_writer(name, run)
        return run
