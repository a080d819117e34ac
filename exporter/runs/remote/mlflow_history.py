"""What one run of a tracking server logged so far: each metric's history, read once and put into steps."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from exporter.runs.remote.tracking import Entry, TrackedRun, Tracking
from exporter.runs.signals.record import Record, is_step

_MACHINE = "system/"
"""MLflow's own measurements of the machine. They count steps of their own, every ten seconds."""


@dataclass(slots=True)
class _Cursor:
    """How far a metric was read: its last page, and which entries of that page are known."""

    page: str = ""
    known: set[int] = field(default_factory=set)
    latest: tuple[int, int, str] | None = None


@dataclass(slots=True)
class _Step:
    """What was logged for one step, and when that began, in seconds since the epoch."""

    time: float
    values: dict[str, Any] = field(default_factory=dict)


class History:
    """The history of the run whose records are to carry the name ``run``.

    Metrics are logged one by one and stamped by the logger, so values are put together by their
    step, not by their order. A metric that is logged for a lower step than before shows a resume;
    one that is logged for the same step again is no news.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._cursors: dict[str, _Cursor] = {}
        self._fresh: list[Entry] = []
        self._steps: dict[str, int] = {}
        self._highest = -1

    def fetch(self, tracking: Tracking, run: TrackedRun) -> None:
        """Read what was logged since the last time.

        Raises:
            PollError: not all of it could be read; the rest comes with the next call.
        """
        for key, latest in run.latest.items():
            cursor = self._cursors.setdefault(key, _Cursor())
            if latest != cursor.latest and not key.startswith(_MACHINE):
                self._read(tracking, run.id, key, cursor)
                cursor.latest = latest

    def _read(self, tracking: Tracking, run_id: str, key: str, cursor: _Cursor) -> None:
        following: str | None = cursor.page
        while following is not None:
            entries, following = tracking.history(run_id, key, cursor.page)
            marks = [hash(repr(entry)) for entry in entries]
            known = zip(entries, marks, strict=True)
            self._fresh += [entry for entry, mark in known if mark not in cursor.known]
            cursor.known = set(marks)
            if following is not None:
                cursor.page, cursor.known = following, set()

    def records(self) -> list[Record]:
        """What was read since the last call, a record for each step; steps go back where a run resumed."""
        entries = sorted(self._fresh, key=attrgetter("time", "step"))
        self._fresh = []
        return list(self._records(entry for entry in entries if is_step(entry.step)))

    def _records(self, entries: Iterable[Entry]) -> Iterator[Record]:
        attempt: dict[int, _Step] = {}
        for entry in entries:
            before = self._steps.get(entry.key, -1)
            if entry.step < before:
                yield from self._passed_on(attempt)
                attempt, self._steps, self._highest = {}, {}, -1
            if entry.step != before:
                self._steps[entry.key] = entry.step
                _add(entry, attempt)
        yield from self._passed_on(attempt)

    def _passed_on(self, attempt: dict[int, _Step]) -> Iterator[Record]:
        """An attempt's records in order. One below a step that was passed on would look like a resume."""
        for step in sorted(attempt):
            if step >= self._highest:
                self._highest = step
                yield Record(step, attempt[step].values, attempt[step].time, run=self._run)


def _add(entry: Entry, attempt: dict[int, _Step]) -> None:
    step = attempt.setdefault(entry.step, _Step(entry.time / 1000))
    step.values[entry.key] = _value(entry.value)


def _value(raw: Any) -> Any:
    """MLflow's databases keep the largest number in place of an infinite one."""
    return math.copysign(math.inf, raw) if raw in (sys.float_info.max, -sys.float_info.max) else raw
