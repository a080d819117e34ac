"""The runs that one log, page or server reports, and the limit on the runs of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from exporter.runs.files.state import RunSnapshots
from exporter.runs.model.progress import Marks
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.signals.record import Ended, Event, Record

RunSets = Callable[..., "RunSet"]
"""Makes the run set of a log once its format is known, with the arguments of ``RunSet``."""
MOST_OF_LOG = 200  # runs of one log; a table whose columns are not runs after all fills no memory


class RunSet:
    """Hands each event to its run; a run begins with the first that names it.

    ``before`` is what runs held before this log's content began, ``watched`` the runs that logged
    while they were watched before the last restart, ``marks`` the operator's. ``refused`` counts
    events of runs beyond ``MOST``. ``goes_on``: what comes first belongs to the attempt of what was
    held before.
    """

    goes_on = False

    def __init__(
        self,
        source: str,
        framework: str,
        options: Options,
        before: RunSnapshots | None = None,
        watched: Iterable[str] = (),
        *,
        marks: Mapping[str, list[list[Any]]] | None = None,
    ) -> None:
        self.runs: dict[str, Run] = {}
        self.refused = 0
        self._source, self._framework, self._options = source, framework, options
        self._before = before or {}
        self._watched = frozenset(watched)
        self._marks = marks or {}

    def take(self, event: Event, clock: Clock) -> None:
        """Take one thing that was logged."""
        run = self.runs.get(event.run)
        if run is None:
            if self.is_full:
                self.refused += 1
                return
            run = self._begin(event.run)
        run.take(event, clock)

    @property
    def is_full(self) -> bool:
        """Whether there are as many runs as one log may have."""
        return len(self.runs) >= MOST_OF_LOG

    def recall(self) -> None:
        """Have the runs of before at once, whether or not anything is logged of them again."""
        for name in self._before.keys() - self.runs.keys():
            self._begin(name)

    def _begin(self, name: str) -> Run:
        run = self.runs[name] = Run(self._source, self._framework, self._options)
        run.watched = name in self._watched
        run.marks = Marks(self._marks.get(name, ()))
        if name in self._before:
            run.restore(self._before[name])
            run.progress.emptied = not self.goes_on
        return run

    def snapshot(self) -> RunSnapshots:
        """What a restart could not rebuild from an emptied log."""
        return {name: run.snapshot() for name, run in self.runs.items()}

    def watched(self) -> list[str]:
        """The runs that logged while the exporter was watching."""
        return [name for name, run in self.runs.items() if run.watched]

    def marks(self) -> dict[str, list[list[Any]]]:
        """The marks of each run that has any."""
        return {name: run.marks.snapshot() for name, run in self.runs.items() if run.marks.all}

    def emptied(self) -> None:
        """The log was emptied: what comes next is another attempt's."""
        for run in self.runs.values():
            run.progress.emptied = True

    def version(self) -> int:
        """Rises with everything that was logged."""
        return sum(run.version for run in self.runs.values())


MOST_RUNS = 400
"""Runs that are followed at once. Each weighs up to 0.4 MB, and the container may take 256 MB."""
MOST_LEFT_OUT = 1000  # Polled runs that are left out and counted: names may change at each poll
LIVE_SECONDS = 3600.0  # A log that is not followed counts as ended after so long without a write


class Priority(IntEnum):
    """Which log is left out first: the one with the lowest."""

    UNSHOWN = 0
    FINISHED = 1
    ENDED = 2
    DUPLICATE = 3
    LIVE = 4


OF_STATE = {
    "running": Priority.LIVE,
    "failed": Priority.ENDED,
    "vanished": Priority.ENDED,
    "stopped": Priority.ENDED,
    "finished": Priority.FINISHED,
}
"""An alert may be about a run that ended badly; runs of other states are not shown."""


class LeftOut(NamedTuple):
    """A log with runs, or a polled run: what is known if it is not followed, and when it was written."""

    priority: Priority
    changed: float
    runs: int

    def now(self, changed: float, wall: float) -> LeftOut:
        """The same log, written at ``changed``: a log that grew is live, a silent one ended."""
        priority = self.priority
        if wall - changed > LIVE_SECONDS:
            priority = min(priority, Priority.FINISHED)
        elif changed > self.changed and priority < Priority.DUPLICATE:
            priority = Priority.LIVE
        return LeftOut(priority, max(changed, self.changed), self.runs)


class Followed(NamedTuple):
    """What is followed and may be left out; ``before``: it was followed at the last look already."""

    known: LeftOut
    before: bool
    leave_out: Callable[[LeftOut], None]


class PolledRunSet(RunSet):
    """The runs of a page or server, which begin only while the limit has room for them."""

    goes_on = True

    def __init__(self, limit: RunLimit, *known: Any, **more: Any) -> None:
        super().__init__(*known, **more)
        self.priorities: dict[str, Priority] = {}
        self.left_out: dict[str, LeftOut] = {}
        self._limit = limit
        limit.polled.append(self)

    def take(self, event: Event, clock: Clock) -> None:
        """Take one thing that was logged, unless its run is left out."""
        if event.run not in self.runs and not self.is_full:
            if self._limit.room <= 0:
                time = event.time if isinstance(event, Record) else None
                changed = clock.wall if time is None else min(time, clock.wall)
                priority = Priority.FINISHED if isinstance(event, Ended) else Priority.LIVE
                self.leave_out(event.run, LeftOut(priority, changed, 1))
                return
            self._limit.room -= 1
            self.left_out.pop(event.run, None)
        super().take(event, clock)

    def leave_out(self, name: str, known: LeftOut) -> None:
        """Follow a run no more, or not at all."""
        self.runs.pop(name, None)
        self.left_out.pop(name, None)  # the dictionary is ordered by the last event
        self.left_out[name] = known
        if len(self.left_out) > MOST_LEFT_OUT:
            del self.left_out[next(iter(self.left_out))]

    def followed(self) -> list[Followed]:
        """All runs; one that was not judged yet is live."""
        return [
            Followed(
                LeftOut(self.priorities.get(name, Priority.LIVE), run.times.last or 0.0, 1),
                before=True,
                leave_out=partial(self.leave_out, name),
            )
            for name, run in list(self.runs.items())
        ]


class RunLimit:
    """Keeps the number of runs of all sources at ``most``: live runs before ended ones, then the newest.

    A live run that is followed stays until it ends, however many begin after it: it may be the sick one.
    ``polled`` are the run sets of pages and servers, ``room`` is how many runs more may begin there until
    the next look. ``duplicates`` are the logs whose runs are shown by other logs.
    """

    def __init__(self, most: int) -> None:
        self.room = most
        self.polled: list[PolledRunSet] = []
        self.duplicates: AbstractSet[Path] = frozenset()
        self._most = most

    def enforce(self, runs: int, logs: Callable[[], Iterable[Followed]]) -> None:
        """Leave out what is beyond, under the polled runs' lock; ``logs`` are only asked without room."""
        self.room = self._most - runs - sum(len(run_set.runs) for run_set in self.polled)
        if self.room > 0:
            return
        ranked = [*logs(), *(one for run_set in self.polled for one in run_set.followed())]
        ranked.sort(key=lambda one: (one.known.priority, one.before, one.known.changed))
        for known, _, leave_out in ranked:
            if self.room < 0:
                self.room += known.runs
                leave_out(known)
            elif known.priority < Priority.LIVE:  # may give way to a run that begins
                self.room += known.runs

    def still_out(
        self, left: Mapping[str, LeftOut], changed: Mapping[str, float], logs: Iterable[LeftOut], wall: float
    ) -> dict[str, LeftOut]:
        """Which of the logs ``left`` out still are, by their ``changed`` times and the followed ``logs``."""
        if not left:
            return {}
        runs: Counter[Priority] = Counter()
        for known in (*logs, *(one.known for run_set in self.polled for one in run_set.followed())):
            runs[known.priority] += known.runs
        there = {path: left[path].now(changed[path], wall) for path in left.keys() & changed.keys()}
        still: dict[str, LeftOut] = {}
        for path, log in sorted(there.items(), key=lambda item: item[1][:2], reverse=True):
            above = sum(count for priority, count in runs.items() if priority >= log.priority)
            if above + log.runs > self._most:
                still[path] = log
            else:
                runs[log.priority] += log.runs
        return still
