"""The search for logs on one mount: starting points, and which files are logs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from exporter.runs.files.mounts import Call, Mount, Mounts
from exporter.runs.files.notice import Refusals
from exporter.runs.logs.find import Found, Scope, Seen, Start, fixed_part, search, start_of
from exporter.runs.logs.names import gathered, is_part
from exporter.runs.model.run_set import LeftOut


class Starts:
    """The starts of the watched paths, and of the places where a search left its mount."""

    def __init__(self, paths: tuple[str, ...], mounts: Mounts) -> None:
        self._paths, self._mounts = paths, mounts
        self._roots: dict[str, tuple[Mount, Start]] = {}
        self._led: dict[Start, tuple[Mount, Start]] = {}

    def resolve(self) -> None:
        """Find out on which mounts the watched paths lie now."""
        for pattern in self._paths:
            try:
                mount, real = self._mounts.resolve(fixed_part(pattern))
            except OSError:  # the last known state stays valid
                continue
            self._roots[pattern] = mount, start_of(pattern, real)

    def by_mount(self, beyond: Iterable[Start]) -> dict[Mount, list[Start]]:
        """All starts; ``beyond`` are the places that lead off the mount of a search."""
        starts: dict[Mount, list[Start]] = {}
        for mount, start in self._roots.values():
            starts.setdefault(mount, []).append(start)
        known, self._led = self._led, {}
        for place in beyond:
            if self._mounts.begins_at(place.real):
                mount, start = self._mounts.of(place.real), place
            elif place in known and known[place][0] in self._mounts:
                mount, start = known[place]
            else:
                try:
                    mount, real = self._mounts.resolve(place.real)
                except OSError:
                    continue
                start = place._replace(real=real)
            self._led[place] = mount, start
            there = starts.setdefault(mount, [])
            if not any(_covers(other, start) for other in there):
                there.append(start)
        return starts


def _covers(known: Start, other: Start) -> bool:
    """Whether one search comes by all that another one would."""
    if known.rest or other.rest:
        return (known.real, known.rest) == (other.real, other.rest)
    return f"{other.real}/".startswith(f"{known.real.rstrip('/')}/")


KINDS = ("binary", "no_records")


class Ignored:
    """Files by path and inode, with their size: one that shrinks is another. ``sweep`` ends a search."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(KINDS, 0)
        self._round = 0
        # Size, kind and round in one number: an object for each would weigh five times as much.
        self._known: dict[int, int] = {}

    def add(self, path: str, inode: int, size: int, kind: str) -> None:
        """Ignore a file until another one takes its place."""
        self._known[hash((path, inode))] = size << 2 | KINDS.index(kind) << 1 | self._round
        self.counts[kind] += 1

    def holds(self, path: str, inode: int, size: int) -> bool:
        """Whether this file is ignored."""
        key = hash((path, inode))
        known = self._known.get(key)
        if known is None or size < known >> 2:
            return False
        self._known[key] = known & ~1 | self._round
        return True

    def sweep(self) -> None:
        """Forget the files that were not asked for since the last time."""
        for key in [key for key, known in self._known.items() if known & 1 != self._round]:
            del self._known[key]
        self._round ^= 1
        kinds = [known >> 1 & 1 for known in self._known.values()]
        self.counts = {kind: kinds.count(index) for index, kind in enumerate(KINDS)}


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


@dataclass(slots=True)
class SearchResult:
    """What one search of a mount came by.

    ``found`` are logs that are known and those that may become some; ``old``, ``empty`` and ``left_out``
    count the others. ``pause``: seconds after its start until the next search.
    """

    beyond: list[Start]
    refusals: Refusals
    found: list[Found] = field(default_factory=list)
    old: int = 0
    empty: int = 0
    left_out: int = 0
    pause: float = 0.0


@dataclass(slots=True, eq=False)
class Branch:
    """What is done on one mount, and what is known of the files there.

    ``aside`` are logs that were shown and are old by now, with the times at which they were written.
    ``over`` are logs with runs beyond the limit.
    """

    mount: Mount
    starts: tuple[Start, ...] = ()
    beyond: list[Start] = field(default_factory=list)
    refusals: Refusals = field(default_factory=Refusals)
    ignored: Ignored = field(default_factory=Ignored)
    aside: dict[str, float] = field(default_factory=dict)
    over: dict[str, LeftOut] = field(default_factory=dict)
    old: int = 0
    empty: int = 0
    left_out: int = 0
    begun: float = 0.0
    next_search: float = 0.0
    search: Call[SearchResult] | None = None
    work: Call[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether its thread is still at work."""
        return any(call is not None and not call.done() for call in (self.search, self.work))


class Searcher:
    """Searches mounts for files that may be logs.

    ``known`` are the logs that are followed, by path; ``has_step`` says of W&B's file whether it has a step,
    ``has_writer`` of a path whether its writer was
    there when it was seen last. A file is old ``forget_after`` seconds after its last write. Of other files
    than known ones a search keeps the newest, at most ``most``.
    """

    def __init__(
        self,
        mounts: Mounts,
        time: Time,
        known: Container[str],
        has_step: Callable[[Found], bool],
        has_writer: Callable[[str], bool],
        *,
        forget_after: float,
        most: int,
    ) -> None:
        self._mounts, self._time = mounts, time
        self._known, self._has_step, self._has_writer = known, has_step, has_writer
        self._forget_after, self._most = forget_after, most

    def search(self, branch: Branch, starts: tuple[Start, ...]) -> SearchResult:
        """Search a mount, in its thread: keep what may matter, and of the rest no more than its number."""
        started, worked = self._time.monotonic(), self._time.thread_time()
        scope, refusals = Scope(self._mounts, branch.mount), Refusals()
        result = SearchResult(scope.beyond, refusals)
        kept: list[Found] = []
        newest: list[tuple[bool, float, Seen]] = []
        oldest = self._time.time() - self._forget_after
        aside, branch.aside = branch.aside, {}
        for seen in search(starts, scope, refusals):
            if seen.path in self._known or is_part(seen.path):
                kept.append(seen.found)
            elif self._may_be_new(branch, aside, seen, oldest, result):
                heapq.heappush(newest, (seen.size > 0, seen.changed, seen))
                if len(newest) > self._most:
                    has_content, _, _ = heapq.heappop(newest)
                    result.left_out += has_content
                    result.empty += not has_content
        new = {seen.path for _, _, seen in newest}
        for found in gathered([*kept, *(seen.found for _, _, seen in newest)], self._has_step):
            one = Seen(str(found.path), found.root, found.inode, found.size, found.changed)
            known = one.path in new or one.path in self._known
            if known or self._may_be_new(branch, aside, one, oldest, result):
                result.found.append(found)
        branch.ignored.sweep()
        result.old += len(branch.aside)
        took, work = self._time.monotonic() - started, self._time.thread_time() - worked
        result.pause = max(DISCOVER_SECONDS, took / DISCOVER_SHARE, work / DISCOVER_CORE)
        return result

    def _may_be_new(
        self, branch: Branch, aside: dict[str, float], seen: Seen, oldest: float, result: SearchResult
    ) -> bool:
        """Whether to look into a file that is not followed; if it is old, that is counted."""
        if aside.get(seen.path) == seen.changed:
            branch.aside[seen.path] = seen.changed
            return False
        # A run that hung while its writer was seen has not left the pages.
        if seen.changed < oldest and not self._has_writer(seen.path):
            result.old += 1
            return False
        return not branch.ignored.holds(seen.path, seen.inode, seen.size)
