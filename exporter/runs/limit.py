"""The limit on runs: which logs are followed when there are more runs than memory allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from exporter.runs.discover import Found
from exporter.runs.log import Log
from exporter.runs.mounts import Mount

MOST_RUNS = 400
"""Runs that are followed at once. Each weighs up to 0.4 MB, and the container may take 256 MB."""

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
    """A log with runs that is not followed: what was known of it, and when it was written."""

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
        """Whether nobody watches a run that goes on."""
        return self.priority is Priority.LIVE


class RunLimit:
    """Keeps the number of runs below ``most``: live runs before ended ones, then the newest.

    A live run that is followed stays until it ends, however many begin after it: it may be the sick one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._before: Sequence[Log] = ()

    def surplus(self, logs: Sequence[Log], late: AbstractSet[Mount], wall: float) -> dict[Path, LeftOut]:
        """The logs to leave out.

        Args:
            logs: All that have runs.
            late: Mounts that do not answer: the logs there stay.
            wall: The time in seconds since the epoch.
        """
        surplus = sum(len(log.runs) for log in logs) - self._most
        left: dict[Path, LeftOut] = {}
        if surplus > 0:
            followed = {log.path for log in self._before}
            free = {
                log.path: _of_log(log, wall)
                for log in logs
                if log.unread_since is None and log.mount not in late
            }
            for path, log in sorted(
                free.items(), key=lambda item: (item[1].priority, item[0] in followed, item[1].changed)
            ):
                left[path] = log
                surplus -= log.runs
                if surplus <= 0:
                    break
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


def _of_log(log: Log, wall: float) -> LeftOut:
    """What is known of a log; one that was not judged yet lives if it was written lately."""
    changed = max(log.written, log.changed)
    priority = Priority(log.priority) if log.priority is not None else None
    if priority is None or not log.caught_up:
        priority = Priority.LIVE if wall - changed < LIVE_SECONDS else Priority.FINISHED
    return LeftOut(priority, changed, len(log.runs))
