"""Real logs, record by record, as the exporter reads and shows them: one sample of each series every 5 s."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO
from unittest import mock

from exporter.runs import discover
from exporter.runs import log as log_module
from exporter.runs.discover import Found
from exporter.runs.exposition import RunText
from exporter.runs.gather import gathered
from exporter.runs.health import Health
from exporter.runs.log import Log
from exporter.runs.readers.follow import LAST_LINE_SECONDS
from exporter.runs.record import Event, Record
from exporter.runs.roster import Roster
from exporter.runs.run import Clock, Options
from exporter.runs.statefile import StateFolder
from exporter.runs.views import View
from tests.rules.promtool import INTERVAL
from tests.rules.rendered import CHECKOUT

REAL_RUNS = Path(os.environ.get("STEPWATCH_TEST_RUNS", CHECKOUT.parent / "shared" / "runs"))

START = 1_700_006_400
"""When every run is taken to begin: a full two hours, so that the samples fill few blocks."""

NO_HOLD = 1.0
"""Shorter than the time between two records: each is seen as it is."""


Keys = Mapping[str, Sequence[str]]
"""Keys of signals, as `signals:` of config.yaml names them."""


def write(name: str, log: Path, out: TextIO, keys: Keys = MappingProxyType({})) -> dict[str, int]:
    """Write the samples of the log's runs as OpenMetrics; returns the records of each run, by its name."""
    rosters: list[_Shown] = []

    def shown(*about: Any) -> _Shown:
        rosters.append(_Shown(*about, name=name, out=out))
        return rosters[-1]

    with mock.patch.object(log_module, "Roster", shown):
        for found in gathered(discover.files([str(log)])):
            _read(found, keys)
    return {run: count for roster in rosters for run, count in roster.end()}


def _read(found: Found, keys: Keys) -> None:
    """Read a log to its end."""
    log = Log(found, StateFolder(None), Health(), Options(hold=NO_HOLD, keys=keys))
    while log.more:
        log.read(time.time(), time.monotonic())
    log.read(time.time() + LAST_LINE_SECONDS, time.monotonic())


class _Shown(Roster):
    """Runs of which each record arrives before our eyes, and is looked at before the next one comes.

    What a log tells of one step in a row is one record of it.
    """

    def __init__(self, *about: Any, name: str, out: TextIO) -> None:
        super().__init__(*about)
        self._name, self._out = name, out
        self._records: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._texts: dict[str, RunText] = {}

    def take(self, event: Event, clock: Clock) -> None:  # noqa: ARG002  (time passes with the records)
        if isinstance(event, Record) and self._steps.get(event.run) != event.step:
            self._show(event.run)
            self._steps[event.run] = event.step
            self._records[event.run] = self._records.get(event.run, 0) + 1
        now = self._now(event.run)
        super().take(event, Clock(START + now, now, live=True))

    def end(self) -> Iterator[tuple[str, int]]:
        """Each run's name, and the number of its records."""
        for run, count in self._records.items():
            self._show(run)
            yield self._named(run), count

    def _now(self, run: str) -> int:
        return INTERVAL * self._records.get(run, 0)

    def _named(self, run: str) -> str:
        return f"{self._name}/{run}" if run else self._name

    def _show(self, run: str) -> None:
        if run not in self._records:
            return
        now, text = self._now(run), self._texts.setdefault(run, RunText())
        view = View(self._named(run), self.runs[run], "running", None)
        for lines in text.chunks(view, now).values():
            self._out.writelines(f"{line} {START + now}\n" for line in lines.splitlines())
