"""What the run exporter would have served at each record of a log, a second apart, as OpenMetrics."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from exporter.http.exposition import escape, number
from exporter.runs.logs.find import Found
from exporter.runs.logs.names import printable
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.model.run_set import RunSet
from exporter.runs.serve.metrics import LABELS, latest, progress, statistics
from exporter.runs.signals.record import Event, Record
from exporter.runs.stats.catalogue import JUDGED
from stepwatch.operate import logfiles

START = 1_700_006_400
"""When every run is taken to begin, in seconds since the epoch: a full two hours, to fill few blocks."""

REPEAT_SECONDS = 240
"""A value that stays is written again: Prometheus takes a sample to be valid for five minutes."""

GONE = math.nan
"""For a statistic that is no more (a resume clears the windows): no comparison holds for it."""


class Replayed(NamedTuple):
    """A run that was written: the ``steps`` of its records, and its ``signals`` that rules look at."""

    run: str
    files: tuple[str, ...]
    format: str
    steps: tuple[int, ...]
    signals: tuple[str, ...]


def write(
    found: Found, name: str, metrics: Collection[str], options: Options, out: Path
) -> tuple[Replayed, ...]:
    """Write the samples of a log's runs, of these metrics only; record k (from 1) at ``START`` + k.

    Raises:
        UnreadError: there is no run in it.
    """
    with out.open("w", encoding="utf-8") as samples:
        tapes = _Tapes(name, frozenset(metrics), samples)
        logfiles.read(found, options, partial(_Recorder, tapes))
        tapes.end()
    files = tuple(map(printable, found.parts))
    return tuple(
        Replayed(tape.name, files, tape.run.source, tuple(tape.steps), tape.signals())
        for tape in tapes.of_runs.values()
    )


class _Tape:
    """The samples of one run. What is logged of one step in a row is one record of it."""

    def __init__(self, name: str, run: Run, metrics: Collection[str], out: TextIO) -> None:
        self.name, self.run = name, run
        self.steps: list[int] = []
        self._label = f'run="{escape(name)}"'
        self._metrics = metrics
        self._out = out
        self._written: dict[str, tuple[float, int]] = {}
        self._series = {
            statistic: f"{statistic.metric}{{{self._label}{labels}}}"
            for statistic, labels in LABELS.items()
            if statistic.metric in metrics
        }

    def comes(self, step: int) -> None:
        """A record of this step comes next: if of another one, the last is whole."""
        if self.steps and self.steps[-1] != step:
            self.write()

    def came(self, step: int) -> None:
        """A record of this step was taken in."""
        if not self.steps or self.steps[-1] != step:
            self.steps.append(step)

    def write(self) -> None:
        """Write what is served after the last record, as far as it is news."""
        now = START + len(self.steps)
        served = self._served()
        for series, value in served.items():
            before, since = self._written.get(series, (None, 0))
            if value != before or now - since >= REPEAT_SECONDS:
                self._sample(series, value, now)
        for series in self._written.keys() - served.keys():
            self._sample(series, GONE, now)
            del self._written[series]

    def signals(self) -> tuple[str, ...]:
        """Those that rules look at and that were logged."""
        return tuple(signal for signal in self.run.latest if signal in JUDGED)

    def _served(self) -> dict[str, float]:
        served = {
            f"{metric}{{{self._label}}}": value
            for metric, value in (*progress(self.run), *latest(self.run))
            if metric in self._metrics
        }
        series = self._series
        served.update((series[each], value) for each, value in statistics(self.run) if each in series)
        return served

    def _sample(self, series: str, value: float, now: int) -> None:
        self._out.write(f"{series} {number(value)} {now}\n")
        self._written[series] = (value, now)


class _Tapes:
    """A tape for each run of one log."""

    def __init__(self, name: str, metrics: Collection[str], out: TextIO) -> None:
        self.of_runs: dict[str, _Tape] = {}
        self._name, self._metrics, self._out = name, metrics, out

    def begin(self, name: str, run: Run) -> None:
        """The log reports this run."""
        whole = "/".join(filter(None, (self._name, name)))
        self.of_runs[name] = _Tape(whole, run, self._metrics, self._out)

    def end(self) -> None:
        """The last records are whole."""
        for tape in self.of_runs.values():
            if tape.steps:
                tape.write()


class _Recorder(RunSet):
    """The runs of a log, each record of which is looked at before the next one comes."""

    def __init__(self, tapes: _Tapes, *about: Any, **known: Any) -> None:
        super().__init__(*about, **known)
        self._tapes = tapes

    def take(self, event: Event, clock: Clock) -> None:
        if not isinstance(event, Record):
            super().take(event, clock)
            return
        if event.run in self.runs:
            self._tapes.of_runs[event.run].comes(event.step)
        super().take(event, clock)
        if event.run in self.runs:
            self._tapes.of_runs[event.run].came(event.step)

    def _begin(self, name: str) -> Run:
        run = super()._begin(name)
        run.watched = True  # a replay is what this is about
        self._tapes.begin(name, run)
        return run
