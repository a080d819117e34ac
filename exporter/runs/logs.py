"""All logs below the watched folders: found, read in turn, and left alone once they are old."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from exporter.runs import discover
from exporter.runs.discover import Found
from exporter.runs.gather import gathered
from exporter.runs.health import Health
from exporter.runs.log import Log
from exporter.runs.notice import Notice
from exporter.runs.refusal import Refusal, Refusals, refusal
from exporter.runs.run import Options
from exporter.runs.statefile import StateFolder

READ_SECONDS = 1.0
"""How long one look reads at most: runs are shown, and signals heeded, during a cold start too."""
YIELD_SECONDS = 0.0005
"""Pause between two blocks: a lock released and taken again at once is never handed over."""
DISCOVER_SECONDS = 5.0
DISCOVER_SHARE = 0.05
DISCOVER_CORE = 0.01
"""Share of the time that looking for files may take, and of a core. A slow disk takes time only."""


class Time(Protocol):
    """The clocks, as in the module of that name."""

    def time(self) -> float: ...
    def monotonic(self) -> float: ...
    def thread_time(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


class Logs:
    """Logs by path.

    ``forget_after``: seconds of silence after which a log is old. ``stopped``: is nothing to be read any
    more?
    """

    def __init__(
        self,
        paths: tuple[str, ...],
        states: StateFolder,
        health: Health,
        options: Options,
        *,
        forget_after: float,
        time: Time,
        stopped: Callable[[], bool],
    ) -> None:
        self.by_path: dict[Path, Log] = {}
        self._paths, self._states, self._health, self._options = paths, states, health, options
        self._forget_after = forget_after
        self._time = time
        self._stopped = stopped
        self._old: dict[Path, float] = {}
        self._refusals = Refusals()
        self._notice = Notice()
        self._next_discovery = 0.0

    def __iter__(self) -> Iterator[Log]:
        return iter(self.by_path.values())

    def look(self, lock: AbstractContextManager[object]) -> list[Log]:
        """Find new logs and read what was appended; returns the logs that are gone for good."""
        gone: list[Log] = []
        discovery = self._time.monotonic() >= self._next_discovery
        if discovery:
            gone = self._discover()
        self._read_all(lock)
        if discovery:
            self._notice.tell(self.refused())
        return gone

    def _discover(self) -> list[Log]:
        started, worked = self._time.monotonic(), self._time.thread_time()
        self._refusals = Refusals()
        files = discover.files(list(self._paths), self._refusals)
        found = {one.path: one for one in gathered(files)}
        for path, one in found.items():
            self._meet(path, one)
        gone = [log for path, log in self.by_path.items() if path not in found and self._is_forgettable(log)]
        for log in gone:
            del self.by_path[log.path]
            log.forget()
        for path in [path for path in self._old if path not in found]:
            del self._old[path]
        took, work = self._time.monotonic() - started, self._time.thread_time() - worked
        self._next_discovery = started + max(DISCOVER_SECONDS, took / DISCOVER_SHARE, work / DISCOVER_CORE)
        return gone

    def _meet(self, path: Path, found: Found) -> None:
        """Follow a log that is new, or another one by now."""
        known = self.by_path.get(path)
        if known is not None and not known.replaced(found):
            known.found_again(found)
        elif self._old.get(path) == found.changed:
            return
        elif known is None and self._is_old(path, found):
            self._old[path] = found.changed
        else:
            self._old.pop(path, None)
            self.by_path[path] = Log(found, self._states, self._health, self._options)

    def _is_old(self, path: Path, found: Found) -> bool:
        """Has its run left the pages long ago? A run that hung while its writer was seen has not."""
        if self._time.time() - found.changed <= self._forget_after:
            return False
        saved = self._states.load(path)
        return saved is None or not saved.writer

    def _is_forgettable(self, log: Log) -> bool:
        """May a file that is gone be forgotten? One that was a run stays until its time is over."""
        return log.roster is None or self.quiet(log) > self._forget_after

    def lay_aside(self, log: Log) -> None:
        """The log's runs have left the pages: look at it again only when it changes."""
        log.save()
        del self.by_path[log.path]
        self._old[log.path] = log.written

    def quiet(self, log: Log) -> float:
        """Seconds since a log last grew."""
        return log.quiet(self._time.monotonic())

    def _read_all(self, lock: AbstractContextManager[object]) -> None:
        """A block of each log in turn, so that a long one does not keep the others waiting."""
        now = self._time.monotonic()
        due = [log for log in self if log.is_due(now)]
        waiting = deque(sorted(due, key=lambda log: (log.more, log.looked)))
        while waiting and not (waiting[0].more and self._time.monotonic() > now + READ_SECONDS):
            if self._stopped():
                return
            log = waiting.popleft()
            self._read(log, lock)
            if log.more:
                waiting.append(log)
                self._time.sleep(YIELD_SECONDS)

    def _read(self, log: Log, lock: AbstractContextManager[object]) -> None:
        problem, log.refusal = None, None
        try:
            log.read(self._time.time(), self._time.monotonic(), lock)
        except FileNotFoundError:
            problem = "vanished"
        except OSError as error:
            problem, log.refusal = "unreadable", refusal(log.file, error)
        if problem is not None and problem != log.problem:
            self._health.file_errors[problem] += 1
        log.problem = problem

    def refused(self) -> dict[Path, Refusal]:
        """What cannot be read now: logs, and what the search for them met."""
        logs = (log.refusal for log in self if log.refusal)
        return {**self._refusals.by_path, **{found.path: found for found in logs}}

    def kinds(self) -> Counter[str]:
        """How many files there are of each kind."""
        kinds = Counter(log.kind for log in self if not log.refusal)
        kinds["old"] = len(self._old)
        kinds["unreadable"] = len(self.refused())
        return kinds
