"""The search for logs below one root of ``runs.path``: which files are logs, and which can be left alone."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from exporter.runs.files.mounts import Call, Mount
from exporter.runs.files.notice import Refusals
from exporter.runs.logs.find import Found, Seen, fixed_part, search
from exporter.runs.logs.names import gathered, is_part
from exporter.runs.model.run_set import LeftOut

KINDS = ("binary", "no_records")
DISCOVER_SECONDS = 5.0
DISCOVER_SHARE = 0.05
DISCOVER_CORE = 0.01
"""Share of the time that looking for files may take, and of a core. A slow disk takes time only."""


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
        self._known = {key: known for key, known in self._known.items() if known & 1 == self._round}
        self._round ^= 1
        kinds = [known >> 1 & 1 for known in self._known.values()]
        self.counts = {kind: kinds.count(index) for index, kind in enumerate(KINDS)}


@dataclass(slots=True)
class Searched:
    """What one search came by: logs that are known or may become some, and the numbers of others.

    ``pause``: seconds after its start until the next search.
    """

    refusals: Refusals = field(default_factory=Refusals)
    found: list[Found] = field(default_factory=list)
    old: int = 0
    empty: int = 0
    left_out: int = 0
    pause: float = 0.0


class Root:
    """A path of ``runs.path``, or a mount below one: the thread that makes all calls to its files, and they.

    ``below``: from where on files of a mount are named.
    ``aside`` are logs that were shown and are old by now, with the times at which they were written. ``over``
    are logs with runs beyond the limit. ``cleaned``: the states of deleted logs are forgotten.
    """

    def __init__(self, pattern: str, below: Path | None = None) -> None:
        self.pattern, self.below, self.folder = pattern, below, os.path.abspath(fixed_part(pattern))  # noqa: PTH100
        self.thread = Mount(self.folder if below else pattern)
        self.searched = Searched()
        self.ignored = Ignored()
        self.aside: dict[str, float] = {}
        self.over: dict[str, LeftOut] = {}
        self.begun = self.next_search = 0.0
        self.cleaned = False
        self.search: Call[Searched] | None = None
        self.work: Call[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether its thread is still at work."""
        return any(call is not None and not call.done() for call in (self.search, self.work))

    def look_for_logs(
        self,
        known: Container[str],
        has_step: Callable[[Found], bool],
        has_writer: Callable[[str], bool],
        apart: Collection[str],
        time: ModuleType,
        *,
        forget_after: float,
        most: int,
    ) -> Searched:
        """Search, in its thread: keep what may matter, and of the rest no more than its number.

        ``known`` are the logs that are followed, by path; ``has_step`` says of W&B's file whether it has a
        step, ``has_writer`` of a path whether its writer was there when it was seen last. A file is old
        ``forget_after`` seconds after its last write. Of other files than known ones the newest are kept, at
        most ``most``.
        """
        started, worked = time.monotonic(), time.thread_time()
        result, kept, oldest = Searched(), list[Found](), time.time() - forget_after
        newest: list[tuple[bool, float, Seen]] = []
        aside, self.aside = self.aside, {}

        def may_be_new(seen: Seen) -> bool:
            """Whether to look into a file that is not followed; if it is old, that is counted."""
            if aside.get(seen.path) == seen.changed:
                self.aside[seen.path] = seen.changed
                return False
            # A run that hung while its writer was seen has not left the pages.
            if seen.changed < oldest and not has_writer(seen.path):
                result.old += 1
                return False
            return not self.ignored.holds(seen.path, seen.inode, seen.size)

        for seen in search([self.pattern], result.refusals, self.thread.mark_alive, apart, self.below):
            if seen.path in known or is_part(seen.path):
                kept.append(seen.found)
            elif may_be_new(seen):
                heapq.heappush(newest, (seen.size > 0, seen.changed, seen))
                if len(newest) > most:
                    has_content, _, _ = heapq.heappop(newest)
                    result.left_out += has_content
                    result.empty += not has_content
        new = {seen.path for _, _, seen in newest}
        for found in gathered([*kept, *(seen.found for _, _, seen in newest)], has_step):
            path = str(found.path)
            one = Seen(path, found.root, found.inode, found.size, found.changed, found.device)
            if path in new or path in known or may_be_new(one):
                result.found.append(found)
        self.ignored.sweep()
        result.old += len(self.aside)
        took, work = time.monotonic() - started, time.thread_time() - worked
        result.pause = max(DISCOVER_SECONDS, took / DISCOVER_SHARE, work / DISCOVER_CORE)
        return result
