"""What moved first in each run that has an alert, as its page says some steps after the onset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from exporter.runs.model.run import Clock, Options
from exporter.runs.model.run_set import RunSet
from exporter.runs.overview.charts import rank
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.record import Event, Record
from exporter.runs.stats.departure import Departure
from stepwatch.backtest.command import Backtest
from stepwatch.backtest.judge import Judged
from stepwatch.config import Config
from stepwatch.operate import logfiles

LOOK = 20
"""Records after the first alert, when someone who was called looks at the page."""


class Moved(NamedTuple):
    """The alert whose onset counts, its step, and the signals that had left their bands by then."""

    alert: str
    onset: int
    signals: tuple[tuple[str, Departure], ...]


def departures(backtest: Backtest, judged: Iterable[object]) -> Mapping[str, list[Moved]]:
    """What moved in the runs of each file that have an alert."""
    records = {run.run: len(run.steps) for run in backtest.runs}
    found: dict[str, list[Moved]] = {}
    for run in judged:
        if isinstance(run, Judged) and run.alerts:
            moved = next(_moved(run, records[run.run]), None)
            found.setdefault(run.files[0], []).extend([moved] if moved else [])
    return found


def _moved(run: Judged, records: int) -> Iterator[Moved]:
    first = min(alert.first_record for alert in run.alerts)
    look = min(first + LOOK, records)
    seen = [alert for alert in run.alerts if alert.first_record <= look and alert.severity != "info"]
    leading = min(seen, key=lambda alert: (rank(alert.severity), alert.first_record))
    signals: list[Any] = []
    (log,), _ = logfiles.logs([run.files[0]], Path("nowhere"))
    until = partial(_Until, run.run, look, leading.first_step, signals)
    logfiles.read(log, Options(keys=keys_of(Config().signals)), until)
    yield Moved(leading.alert, leading.first_step, tuple(signals))


class _Until(RunSet):
    """The runs of a log; of one it notes what had moved after so many records."""

    def __init__(
        self, name: str, records: int, onset: int, out: list[Any], *about: Any, **known: Any
    ) -> None:
        super().__init__(*about, **known)
        self._name, self._records, self._onset, self._out = name, records, onset, out
        self._over = False

    def take(self, event: Event, clock: Clock) -> None:
        super().take(event, clock)
        if self._over or not isinstance(event, Record):
            return
        run = self.runs[event.run]
        if run.records >= self._records and (not event.run or self._name.endswith(f"/{event.run}")):
            self._over = True
            self._out += run.history.departures(self._onset)
