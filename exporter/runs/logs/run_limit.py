"""The limit on runs: which logs and polled runs are followed when there are more than memory allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from exporter.runs.files.mounts import Mount
from exporter.runs.logs.find import Found
from exporter.runs.logs.log import Log
from exporter.runs.model.run import Clock
from exporter.runs.model.run_set import RunSet
from exporter.runs.signals.record import Ended, Event, Record

MOST_RUNS = 400
"""Runs that are followed at once. Each weighs up to 0.4 MB, and the container may take 256 MB."""

MOST_LEFT_OUT = 1000
"""Polled runs that are left out and counted: names may change at each poll."""

LIVE_SECONDS = 3600.0
"""A log that is not followed counts as ended after so long without a write."""


class Priority(IntEnum):
    """Which log is left out first: the one with the lowest."""

    UNSHOWN = 0
    FINISHED = 1
    ENDED = 2
    TWIN = 3
    LIVE = 4


OF_STATE = {
    "running": Priority.LIVE,
    "failed": Priority.ENDED,
    "vanished": Priority.ENDED,
    "stopped": Priority.ENDED,
    "finished": Priority.FINISHED,
}
"""An alert may be about a run that ended badly; other states are not shown."""


class LeftOut(NamedTuple):
    """A log with runs, or a polled run, that is not followed: what is known, and when it was written."""

    priority: Priority
    changed: float
    runs: int

    def now(self, changed: float, wall: float) -> LeftOut:
        """The same log, which was written at ``changed``: a log that grew lives, a silent one ended."""
        priority = self.priority
        if wall - changed > LIVE_SECONDS:
            priority = min(priority, Priority.FINISHED)
        elif changed > self.changed and priority < Priority.TWIN:
            priority = Priority.LIVE
        return LeftOut(priority, max(changed, self.changed), self.runs)

    @property
    def is_live(self) -> bool:
        """Whether a run goes on without being watched."""
        return self.priority is Priority.LIVE


class PolledRunSet(RunSet):
    """The runs of a page or server, which begin only while the limit has room for them.

    ``priorities`` says for each run in which state it was seen last; ``left_out`` are the runs beyond the
    limit.
    """

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
                self.leave_out(event.run, _of_event(event, clock.wall))
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

    def known(self, name: str) -> LeftOut:
        """What is known of a run; one that was not judged yet lives."""
        return LeftOut(self.priorities.get(name, Priority.LIVE), self.runs[name].times.last or 0.0, 1)


class RunLimit:
    """Keeps the number of runs below ``most``: live runs before ended ones, then the newest.

    A live run that is followed stays until it ends, however many begin after it: it may be the sick one.
    ``polled`` are the rosters of pages and servers, ``room`` is how many runs more may begin there until the
    next look.
    """

    def __init__(self, most: int) -> None:
        self.polled: list[PolledRunSet] = []
        self.room = self._most = most
        self._before: Sequence[Log] = ()

    def surplus(self, logs: Sequence[Log], late: AbstractSet[Mount], wall: float) -> dict[Path, LeftOut]:
        """The logs to leave out; polled runs are dropped from their rosters, whose lock is held.

        Args:
            logs: All that have runs.
            late: Mounts that do not answer: the logs there stay.
            wall: The time in seconds since the epoch.
        """
        self.room = self._most - sum(len(log.runs) for log in logs)
        self.room -= sum(len(roster.runs) for roster in self.polled)
        left: dict[Path, LeftOut] = {}
        if self.room <= 0:
            followed = {log.path for log in self._before}
            ranked: list[tuple[LeftOut, bool, Callable[[LeftOut], None]]] = [
                (_of_log(log, wall), log.path in followed, partial(left.__setitem__, log.path))
                for log in logs
                if log.unread_since is None and log.mount not in late
            ]
            ranked += [
                (roster.known(name), True, partial(roster.leave_out, name))
                for roster in self.polled
                for name in roster.runs
            ]
            for known, _, leave_out in sorted(
                ranked, key=lambda one: (one[0].priority, one[1], one[0].changed)
            ):
                if self.room < 0:
                    self.room += known.runs
                    leave_out(known)
                elif known.priority < Priority.LIVE:  # may give way to a run that begins
                    self.room += known.runs
        self._before = [log for log in logs if log.path not in left] if left else logs
        return left

    def admit(
        self, found: Iterable[Found], left: dict[str, LeftOut], logs: Iterable[Log], wall: float
    ) -> dict[str, LeftOut]:
        """Which of the logs that were left out still are; for the others there is room by now.

        Args:
            found: Files that are not followed.
            left: The logs that were left out so far, by path.
            logs: All that have runs and are followed.
            wall: The time in seconds since the epoch.
        """
        if not left:
            return {}
        runs: Counter[Priority] = Counter()
        for known in (_of_log(log, wall) for log in logs):
            runs[known.priority] += known.runs
        for roster in self.polled:
            runs.update(roster.known(name).priority for name in list(roster.runs))
        changed = {str(one.path): one.changed for one in found}
        there = {path: left[path].now(changed[path], wall) for path in left.keys() & changed.keys()}
        still: dict[str, LeftOut] = {}
        for path, log in sorted(there.items(), key=lambda item: item[1][:2], reverse=True):
            above = sum(count for priority, count in runs.items() if priority >= log.priority)
            if above + log.runs > self._most:
                still[path] = log
            else:
                runs[log.priority] += log.runs
        return still


def _of_event(event: Event, wall: float) -> LeftOut:
    """What is known of a polled run that is not followed."""
    priority = Priority.FINISHED if isinstance(event, Ended) else Priority.LIVE
    time = event.time if isinstance(event, Record) else None
    return LeftOut(priority, wall if time is None else min(time, wall), 1)


def _of_log(log: Log, wall: float) -> LeftOut:
    """What is known of a log; one that was not judged yet lives if it was written lately."""
    changed = max(log.written, log.changed)
    priority = Priority(log.priority) if log.priority is not None else None
    if priority is None or not log.caught_up:
        priority = Priority.LIVE if wall - changed < LIVE_SECONDS else Priority.FINISHED
    return LeftOut(priority, changed, len(log.runs))
