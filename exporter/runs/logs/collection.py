"""All logs below the watched folders: found, read in turn, and left alone once they are old."""

from __future__ import annotations

import heapq
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from operator import attrgetter
from pathlib import Path, PurePath
from time import monotonic

from exporter.runs.files.mounts import PATIENCE_SECONDS, HungError, Mount, Mounts
from exporter.runs.files.notice import Notice, Refusal, refusal
from exporter.runs.files.state import State
from exporter.runs.logs.find import Found
from exporter.runs.logs.log import Log
from exporter.runs.logs.names import WANDB_FILE, console_of, has_step
from exporter.runs.logs.processes import Writers
from exporter.runs.logs.searcher import DISCOVER_SECONDS, Branch, Searcher, Starts, Time
from exporter.runs.logs.states import RunStates
from exporter.runs.model.ends import Judge, Sighting
from exporter.runs.model.exporter_health import Health
from exporter.runs.model.run import Options
from exporter.runs.model.run_set import Followed, LeftOut, Priority, RunLimit, RunSet

READ_SECONDS = 1.0
"""How long one look reads at most: runs are shown, and SIGTERM takes effect, during a cold start too."""
YIELD_SECONDS = 0.0005
"""Pause between two blocks: a lock released and taken again at once is never handed over."""
MOST_CROSSINGS = 8
"""Mounts that a way to a log may lead over at the first look; each later look goes on by one."""
MOST_FILES = 5000
"""Files without a record that are followed, the newest: each weighs some 3 kB, and is looked at."""
WRITERS_SECONDS = 1.0


class Logs:
    """The source of all runs that are logged to files. No mount waits for another.

    ``forget_after``: seconds of silence after which a log is old. ``lock`` is held while runs change.
    ``stopped`` says whether to read no further.
    """

    def __init__(
        self,
        paths: tuple[str, ...],
        states: State,
        health: Health,
        options: Options,
        *,
        mounts: Mounts,
        writers: Writers,
        limit: RunLimit,
        lock: AbstractContextManager[object],
        forget_after: float,
        time: Time,
        stopped: Callable[[], bool],
    ) -> None:
        self.by_path: dict[Path, Log] = {}
        self.sightings: Sequence[Sighting] = ()
        self.named_by_path: Mapping[Path, PurePath] = {}
        self.dormant = 0
        self._by_name: dict[str, Log] = {}
        self._states, self._health, self._options = states, health, options
        self._mounts, self._writers, self._limit, self._lock = mounts, writers, limit, lock
        self._forget_after, self._time, self._stopped = forget_after, time, stopped
        self._branches: dict[Mount, Branch] = {}
        self._searcher = Searcher(
            mounts,
            time,
            self._by_name,
            self._has_step,
            states.has_writer,
            forget_after=forget_after,
            most=MOST_FILES,
        )
        self._starts = Starts(paths, mounts)
        self._notice = Notice()
        self._next_roots = self._next_writers = 0.0
        self._cleaned: set[Mount] = set()
        self._run_states = RunStates(writers)

    def __iter__(self) -> Iterator[Log]:
        return iter(self.by_path.values())

    def start(self) -> None:
        """Nothing runs in the background."""

    def run_sets(self) -> list[RunSet]:
        """The runs of each log that has any."""
        return [log.run_set for log in self if log.run_set]

    def save(self) -> None:
        """Hand over the state of all logs that changed."""
        for log in self:
            log.save()

    def look(self) -> bool:
        """Find new logs, read what was appended, and look at the writers; return whether there is more."""
        gone, searched = self._search() if self._states.ready else ([], False)
        gone += self._read_all()
        gone += self._leave_out()
        # Logs on a mount that hangs keep what is known of them, and are not taken for silent.
        hung = {mount: mount.silent for mount in self._branches if mount.hangs}
        now, wall = self._time.monotonic(), self._time.time()
        for log in self if hung else ():
            if log.mount in hung:
                log.hangs(wall - hung[log.mount], now - hung[log.mount])
        if searched:
            self._clean_states()
            self._notice.log(self._refused())
        for log in gone:
            self._writers.forget(log.file)
        now, wall = self._time.monotonic(), self._time.time()
        if now >= self._next_writers:
            self._next_writers = now + WRITERS_SECONDS
            written = self._run_states.may_be_written(self, now, wall)
            self._on_mounts(written, lambda logs: self._writers.look([log.file for log in logs], now))
        return any(log.more for log in self) or any(
            branch.busy and not branch.mount.hangs for branch in self._branches.values()
        )

    # Mounts: what one does not answer in time is left to its thread.

    def _late(self) -> frozenset[Mount]:
        """The mounts that owe an answer, so that nothing is known of the logs there now."""
        return frozenset(mount for mount, branch in self._branches.items() if branch.busy)

    def _branch(self, mount: Mount) -> Branch:
        found = self._branches.get(mount)
        if found is None:
            found = self._branches[mount] = Branch(mount)
        return found

    def _on_mounts(self, logs: Iterable[Log], work: Callable[[list[Log]], None]) -> None:
        """Do something to logs, in the threads of their mounts; those that owe an answer are left out."""
        shares: dict[Branch, list[Log]] = {}
        for log in logs:
            if log.mount is not None and not log.reading:
                shares.setdefault(self._branch(log.mount), []).append(log)
        branches = [branch for branch in shares if not branch.busy]
        for branch in branches:
            branch.work = branch.mount.start(partial(work, shares[branch]))
        self._wait(branches)

    def _wait(self, branches: Iterable[Branch]) -> None:
        """Wait for what was handed over, but no longer than any disk that works needs."""
        until = monotonic() + PATIENCE_SECONDS
        for branch in branches:
            left = 0 if branch.mount.hangs else until - monotonic()
            if branch.search is not None:
                branch.search.wait(left)
            if branch.work is not None:
                branch.work.wait(left)
            if branch.work is not None and branch.work.done():
                done, branch.work = branch.work, None
                done.result()

    # Search

    def _search(self) -> tuple[list[Log], bool]:
        """Search each mount whose turn it is; returns the removed logs, and whether a mount was searched."""
        now = self._time.monotonic()
        if now >= self._next_roots:
            self._next_roots = now + DISCOVER_SECONDS
            self._mounts.look()
            self._starts.resolve()
            self._place_starts()
        gone: list[Log] = []
        searched = False
        for _ in range(MOST_CROSSINGS):
            for branch in self._branches.values():
                if branch.starts and now >= branch.next_search and not branch.busy and branch.search is None:
                    branch.begun = now
                    branch.search = branch.mount.start(partial(self._searcher.search, branch, branch.starts))
            self._wait(branch for branch in self._branches.values() if branch.search or branch.work)
            done = [branch for branch in self._branches.values() if branch.search and branch.search.done()]
            if not done:
                break
            searched = True
            for branch in done:
                gone += self._take(branch)
            self._place_starts()
        return gone, searched

    def _place_starts(self) -> None:
        """Search each mount from its current starting points."""
        searched = [branch for branch in self._branches.values() if branch.starts]
        starts = self._starts.by_mount(start for branch in searched for start in branch.beyond)
        for mount in starts.keys() | self._branches.keys():
            branch, begin = self._branch(mount), tuple(starts.get(mount, ()))
            if begin != branch.starts:
                branch.starts, branch.next_search = begin, 0.0
        self._branches = {
            mount: branch for mount, branch in self._branches.items() if mount in self._mounts or branch.busy
        }
        for log in self:
            if log.mount not in starts:  # it was unmounted
                log.mount = self._mounts.of(str(log.path.absolute()))

    def _take(self, branch: Branch) -> list[Log]:
        """Follow the logs that a search found; returns the removed logs."""
        if branch.search is None:
            return []
        done, branch.search = branch.search, None
        result = done.result()
        branch.beyond, branch.refusals = result.beyond, result.refusals
        branch.old, branch.empty = result.old, result.empty
        branch.next_search = branch.begun + result.pause
        new = [found for found in result.found if not self._is_known(found, branch)]
        changed = {str(found.path): found.changed for found in new}
        wall = self._time.time()
        with_runs = (self._known(log, wall) for log in self if log.run_set is not None)
        branch.over = self._limit.still_out(branch.over, changed, with_runs, wall)
        new = [found for found in new if str(found.path) not in branch.over]
        there = {found.path for found in result.found}
        replaced = {console_of(path) for path in there if path.suffix == WANDB_FILE}
        # A log that has runs stays until its time is over, though its file is gone.
        gone = [
            log
            for log in self
            if log.mount is branch.mount
            and log.path not in there
            and not log.reading
            and (
                log.run_set is None
                or log.path in replaced
                or log.quiet(self._time.monotonic()) > self._forget_after
            )
        ]
        for log in gone:
            self._drop(log)
            self._states.forget(log.path)
        followed = [log for log in self if log.run_set is None and log.mount is branch.mount]
        surplus = max(0, len(followed) + len(new) - MOST_FILES)
        branch.left_out = result.left_out + surplus
        if surplus:
            new, least = _newest(followed, new, surplus)
            for log in least:
                self._drop(log)
            gone += least
        try:
            for found in new:
                saved = self._states.load(found.path)
                log = Log(found, self._states, self._health, self._options, saved=saved)
                log.mount = branch.mount
                self.by_path[found.path] = self._by_name[str(found.path)] = log
        except HungError:  # the state folder: with the next search
            branch.next_search = 0.0
        return gone

    def _has_step(self, wandb_file: Found) -> bool:
        """Whether W&B's file has a step, or is not read yet."""
        log = self._by_name.get(str(wandb_file.path))
        return has_step(wandb_file) if log is None else log.has_step or log.more

    def _is_known(self, found: Found, branch: Branch) -> bool:
        """Whether it is followed already; if so, it is known from now on where it lies."""
        log = self.by_path.get(found.path)
        if log is None:
            return False
        if log.reading and log.mount is not branch.mount:  # its old mount hangs for good, and was remounted
            log.save()
            self._drop(log)
            return False
        log.mount = branch.mount
        if found.parts != log.found.parts:  # its files as they are now: they may be more, or others
            log.found = found
        return True

    def _drop(self, log: Log) -> None:
        del self.by_path[log.path], self._by_name[str(log.path)]

    def _clean_states(self) -> None:
        """Forget, once for each mount that answers, logs that were deleted while the exporter was down."""
        for mount, branch in self._branches.items():
            if mount in self._cleaned or not branch.starts or branch.busy or not branch.next_search:
                continue
            self._cleaned.add(mount)
            try:
                for start in branch.starts:
                    mount.call(partial(self._states.forget_deleted, os.path.abspath(start.path)))  # noqa: PTH100
            except OSError:
                self._cleaned.discard(mount)

    # Reading

    def _read_all(self) -> list[Log]:
        """Read what is due, each mount in its thread; returns files that are not logs, no longer followed."""
        now = self._time.monotonic()
        due = [log for log in self if log.is_due(now)]
        self._on_mounts(due, self._read_some)
        ignored = [log for log in due if log.ignored and not log.reading and log.path in self.by_path]
        for log in ignored:
            self._drop(log)
            if log.mount is not None:
                self._branch(log.mount).ignored.add(str(log.path), log.found.inode, log.length, log.kind)
        return ignored

    def _read_some(self, logs: list[Log]) -> None:
        """A block of each log in turn, so that a long one does not keep the others waiting."""
        branch = self._branch(logs[0].mount) if logs[0].mount else None
        waiting = deque(log for log in logs if not log.more)
        waiting += sorted((log for log in logs if log.more), key=attrgetter("looked"))
        until: float | None = None
        while waiting:
            if self._stopped() or (branch and branch.work and branch.work.late):
                return
            log = waiting.popleft()
            if log.more:  # its time begins here: a busy machine reads on, too, however long the others take
                until = until or self._time.monotonic() + READ_SECONDS
                if self._time.monotonic() > until:
                    return
            self._read(log)
            if branch is not None:
                branch.mount.mark_alive()
            if log.more:
                waiting.append(log)
                self._time.sleep(YIELD_SECONDS)

    def _read(self, log: Log) -> None:
        problem, log.refusal = None, None
        try:
            log.read(self._time.time(), self._time.monotonic(), self._lock)
        except FileNotFoundError:
            problem = "vanished"
        except OSError as error:
            problem, log.refusal = "unreadable", refusal(log.file, error)
        if problem is not None and problem != log.problem:
            self._health.file_errors[problem] += 1
        log.problem = problem

    def _leave_out(self) -> list[Log]:
        """Stop following the logs of runs beyond the limit, after saving their state."""
        with_runs = [log for log in self if log.run_set is not None]
        late, wall = self._late(), self._time.time()
        surplus: dict[Path, LeftOut] = {}

        def followed() -> Iterator[Followed]:
            """The logs that may be left out: those on mounts that do not answer stay."""
            for log in with_runs:
                if log.unread_since is None and log.mount not in late:
                    leave_out = partial(surplus.__setitem__, log.path)
                    yield Followed(self._known(log, wall), log.followed, leave_out)

        with self._lock:
            self._limit.enforce(sum(len(log.runs) for log in with_runs), followed)
        for log in with_runs:
            log.followed = True
        gone: list[Log] = []
        for path, left in surplus.items():
            log = self.by_path[path]
            log.save()
            self._drop(log)
            if log.mount is not None:
                self._branch(log.mount).over[str(path)] = left
            gone.append(log)
        return gone

    def _known(self, log: Log, wall: float) -> LeftOut:
        return log.known(wall, duplicate=log.path in self._limit.duplicates)

    # The state of each run

    def update(self, judge: Judge, now: float) -> None:
        """Judge all runs, under the lock; logs whose runs have all left the pages are laid aside."""
        judged = {log.path: log.relative for log in self if log.run_set and log.caught_up}
        for log in self._run_states.update(list(self), self._late(), judge, now):
            log.save()
            self._drop(log)
            if log.mount is not None:
                branch = self._branch(log.mount)
                branch.aside[str(log.path)] = log.written
                branch.old += 1
        self.named_by_path = judged
        self.sightings, self.dormant = self._run_states.sightings, self._run_states.dormant

    # What the exporter serves about its files

    @property
    def hung(self) -> list[Mount]:
        """The mounts that do not answer, of those that lead to logs."""
        return self._mounts.hung

    def report(self, health: Health, wall: float) -> None:  # noqa: ARG002  (the interface's)
        """Add the files by kind, the runs that are left out, and bytes that are unread."""
        kinds = Counter(log.kind for log in self if not log.refusal)
        for branch in self._branches.values():
            kinds.update({**branch.ignored.counts, "empty": branch.empty, "left_out": branch.left_out})
            for left in branch.over.values():
                health.leave_out(left.runs, live=left.priority is Priority.LIVE)
        health.files = +kinds
        health.files["old"] = sum(branch.old for branch in self._branches.values())
        health.files["unreadable"] = len(self._refused())
        health.unread_bytes = sum(log.unread for log in self)

    def _refused(self) -> dict[Path, Refusal]:
        """What cannot be read now: logs, and what the search for them met."""
        found: dict[Path, Refusal] = {}
        for branch in self._branches.values():
            found |= branch.refusals.by_path
        return found | {log.refusal.path: log.refusal for log in self if log.refusal}


def _newest(followed: list[Log], new: list[Found], surplus: int) -> tuple[list[Found], list[Log]]:
    """Of files without a record that are followed, and new ones: those to follow now, and those to drop."""
    ranks: list[tuple[tuple[bool, float], Log | Found]] = [
        ((log.length > 0, max(log.written, log.found.changed)), log) for log in followed
    ]
    ranks += [((one.size > 0, one.changed), one) for one in new]
    least = {id(each) for _, each in heapq.nsmallest(surplus, ranks, key=lambda pair: pair[0])}
    return [one for one in new if id(one) not in least], [log for log in followed if id(log) in least]
