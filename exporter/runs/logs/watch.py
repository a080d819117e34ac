"""All logs below the roots of ``runs.path``: found, read in turn, judged, and left alone once they are old.

A call to a dead file server (NFS, FUSE) never returns, and nothing can end it but SIGKILL. So each root, and
each mount below one, has a thread that makes all calls to it; one that does not answer holds up no other.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from operator import attrgetter
from pathlib import Path, PurePath
from time import monotonic
from types import ModuleType

from exporter.runs.files.mounts import PATIENCE_SECONDS, Mount
from exporter.runs.files.notice import Notice, Refusal, refusal
from exporter.runs.files.state import State
from exporter.runs.logs.find import WILDCARDS, Found
from exporter.runs.logs.log import Log
from exporter.runs.logs.names import WANDB_FILE, console_of, has_step, printable
from exporter.runs.logs.processes import Writer, Writers
from exporter.runs.logs.search import DISCOVER_SECONDS, Root, Searched
from exporter.runs.model.ends import Judge, Sighting, Signs, ended_before_a_step, is_shown
from exporter.runs.model.exporter_health import Health
from exporter.runs.model.run import Options, Run
from exporter.runs.model.run_set import OF_STATE, Followed, LeftOut, Priority, RunLimit, RunSet

READ_SECONDS = 1.0
"""How long one look reads at most: runs are shown, and SIGTERM takes effect, during a cold start too."""
YIELD_SECONDS = 0.0005
"""Pause between two blocks: a lock released and taken again at once is never handed over."""
MOST_FILES = 5000
"""Files without a record that are followed, the newest: each weighs some 3 kB, and is looked at."""
MOUNTS = Path("/proc/self/mountinfo")  # the kernel's table, which never hangs
_ESCAPED = re.compile(r"\\([0-7]{3})")  # spaces and the like there
WRITERS_SECONDS = 1.0
WRITER_SECONDS = 24 * 3600.0  # the writer of a log that has been silent for that long is not searched for
GROWING_SECONDS = 600.0  # A log that has not grown for that long grows no more: its writer has ended


class Logs:
    """The source of all runs that are logged to files.

    ``forget_after``: seconds of silence after which a log is old. ``lock`` is held while runs change.
    ``stopped`` says whether to read no further. ``sightings`` are the runs to show as of the last ``update``,
    ``dormant`` counts those that had ended before they were watched; ``named_by_path`` are the logs whose
    paths name their runs, each with its path below the watched folder.
    """

    def __init__(
        self,
        paths: Iterable[str],
        states: State,
        health: Health,
        options: Options,
        *,
        writers: Writers,
        limit: RunLimit,
        lock: AbstractContextManager[object],
        forget_after: float,
        time: ModuleType,
        stopped: Callable[[], bool],
    ) -> None:
        self.by_path: dict[Path, Log] = {}
        self.sightings: Sequence[Sighting] = ()
        self.named_by_path: Mapping[Path, PurePath] = {}
        self.dormant = 0
        self._states, self._health, self._options = states, health, options
        self._writers, self._limit, self._lock = writers, limit, lock
        self._forget_after, self._time, self._stopped = forget_after, time, stopped
        self._roots = [Root(path) for path in dict.fromkeys(paths)]
        self._names: dict[str, Log] = {}  # by path, for the searches
        self._notice = Notice()
        self._next_mounts = self._next_writers = 0.0
        self._last: dict[int, str] = {}  # the state of each run, by its serial number

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
        now = self._time.monotonic()
        due = [log for log in self if log.is_due(now)]
        self._in_threads(due, self._read_some)
        for log in due:
            if log.ignored and not log.reading and log.path in self.by_path:
                self._drop(log)
                log.root.ignored.add(str(log.path), log.found.inode, log.length, log.kind)
                gone.append(log)
        gone += self._leave_out()
        # Logs of a root that hangs keep what is known of them, and are not taken for silent.
        now, wall = self._time.monotonic(), self._time.time()
        for log in self:
            if log.root.thread.hangs:
                log.hangs(wall - log.root.thread.silent, now - log.root.thread.silent)
        if searched:
            self._notice.log(self._refused())
        for log in gone:
            self._writers.forget(log.file)
        if now >= self._next_writers:
            self._next_writers = now + WRITERS_SECONDS
            written = self._may_be_written(now, wall)
            self._in_threads(written, lambda logs: self._writers.look([log.file for log in logs], now))
        return any(log.more for log in self) or any(
            root.busy and not root.thread.hangs for root in self._roots
        )

    def _in_threads(self, logs: Iterable[Log], work: Callable[[list[Log]], None]) -> None:
        """Do something to logs, in the threads of their roots; those that owe an answer are left out."""
        shares: dict[Root, list[Log]] = {}
        for log in logs:
            if not log.root.busy:
                shares.setdefault(log.root, []).append(log)
        for root, share in shares.items():
            root.work = root.thread.start(partial(work, share))
        self._wait(shares)

    def _wait(self, roots: Iterable[Root]) -> None:
        """Wait for what was handed over, but no longer than any disk that works needs."""
        until = monotonic() + PATIENCE_SECONDS
        for root in roots:
            left = 0 if root.thread.hangs else until - monotonic()
            if root.search is not None:
                root.search.wait(left)
            if root.work is not None and root.work.wait(left):
                done, root.work = root.work, None
                done.result()

    # Search

    def _search(self) -> tuple[list[Log], bool]:
        """Search each root whose turn it is; returns the removed logs, and whether a root was searched."""
        now = self._time.monotonic()
        if now >= self._next_mounts:
            self._next_mounts = now + DISCOVER_SECONDS
            self._look_at_mounts()
        folders = self._folders()
        for root in self._roots:
            if now >= root.next_search and not root.busy and root.search is None:
                root.begun = now
                look = partial(root.look_for_logs, forget_after=self._forget_after, most=MOST_FILES)
                apart = folders - {root.folder}  # each has a thread of its own
                look = partial(look, self._names, self._has_step, self._states.has_writer, apart, self._time)
                root.search = root.thread.start(look)
        self._wait(root for root in self._roots if root.search or root.work)
        gone: list[Log] = []
        searched = False
        for root in self._roots:
            if root.search is not None and root.search.done():
                done, root.search = root.search, None
                gone += self._take(root, done.result())
                searched = True
        return gone, searched

    def _folders(self) -> set[str]:
        return {root.folder for root in self._roots if WILDCARDS.isdisjoint(root.pattern)}

    def _look_at_mounts(self) -> None:
        """Have a root of its own for each mount below a folder of ``runs.path``, as long as it is mounted."""
        try:
            with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as table:  # noqa: PTH123  (no run's file)
                lines = table.read().splitlines()
        except OSError:
            return
        points = [_ESCAPED.sub(lambda code: chr(int(code[1], 8)), line.split()[4]) for line in lines]
        named = [root for root in self._roots if root.below is None]
        found: dict[str, Root] = {}
        known = {root.folder: root for root in self._roots}
        for root in named:
            for point in points:
                if point.startswith(f"{root.folder}/") and WILDCARDS.isdisjoint(root.pattern + point):
                    below = Path(root.pattern)
                    pattern = str(below / point[len(root.folder) + 1 :])
                    found[point] = known.get(point) or found.get(point) or Root(pattern, below)
        left = [root for root in self._roots if root.below and root.folder not in found]
        self._roots = [*named, *(root for root in found.values() if root.below)]
        self._roots += [root for root in left if root.busy]
        for log in self:
            if log.root in left and not log.root.busy:  # it was unmounted
                log.root = next(root for root in named if log.root.folder.startswith(f"{root.folder}/"))

    def _take(self, root: Root, result: Searched) -> list[Log]:
        """Follow the logs that a search found; returns the removed logs."""
        root.searched, root.next_search = result, root.begun + result.pause
        new: list[Found] = []
        others = [one for other in self._roots if other is not root for one in other.searched.found]
        elsewhere = {(one.device, one.inode) for one in others if one.path in self.by_path}
        for found in result.found:
            log = self.by_path.get(found.path)
            if log is None:
                if (found.device, found.inode) not in elsewhere:  # which another root leads to
                    new.append(found)
            elif not log.root.busy:
                log.root = root  # it may have been mounted meanwhile
                if found.parts != log.found.parts:  # its files are more now, or others
                    log.found = found
        wall = self._time.time()
        with_runs = (self._known(log, wall) for log in self if log.run_set is not None)
        changed = {str(found.path): found.changed for found in new}
        root.over = self._limit.still_out(root.over, changed, with_runs, wall)
        new = [found for found in new if str(found.path) not in root.over]
        gone = self._gone(root, {found.path for found in result.found})
        followed = [log for log in self if log.root is root and log.run_set is None]
        surplus = max(0, len(followed) + len(new) - MOST_FILES)
        result.left_out += surplus
        if surplus:
            new, least = _newest(followed, new, surplus)
            for log in least:
                self._drop(log)
            gone += least
        self._follow(root, new)
        return gone

    def _follow(self, root: Root, new: Iterable[Found]) -> None:
        """Follow new logs from now on; if the state folder hangs, with the next search."""
        try:
            for found in new:
                saved = self._states.load(found.path)
                log = Log(found, self._states, self._health, self._options, root=root, saved=saved)
                self.by_path[found.path] = self._names[str(found.path)] = log
            if not root.cleaned:  # logs that were deleted while the exporter was down
                root.thread.call(partial(self._states.forget_deleted, root.folder, self._folders()))
                root.cleaned = True
        except OSError:
            root.next_search = 0.0

    def _gone(self, root: Root, there: set[Path]) -> list[Log]:
        """Follow no more the logs that are gone; one that has runs stays until its time is over."""
        replaced = {console_of(path) for path in there if path.suffix == WANDB_FILE}
        gone = [
            log
            for log in self
            if log.root is root
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
        return gone

    def _has_step(self, wandb_file: Found) -> bool:
        """Whether W&B's file has a step, or is not read yet."""
        log = self._names.get(str(wandb_file.path))
        return has_step(wandb_file) if log is None else log.has_step or log.more

    def _drop(self, log: Log) -> None:
        del self.by_path[log.path], self._names[str(log.path)]

    # Reading

    def _read_some(self, logs: list[Log]) -> None:
        """A block of each log in turn, so that a long one does not keep the others waiting."""
        root = logs[0].root
        waiting = deque(log for log in logs if not log.more)
        waiting += sorted((log for log in logs if log.more), key=attrgetter("looked"))
        until: float | None = None
        while waiting:
            if self._stopped() or (root.work and root.work.late):
                return
            log = waiting.popleft()
            if log.more:  # its time begins here: a busy machine reads on, too, however long the others take
                until = until or self._time.monotonic() + READ_SECONDS
                if self._time.monotonic() > until:
                    return
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
            root.thread.mark_alive()
            if log.more:
                waiting.append(log)
                self._time.sleep(YIELD_SECONDS)

    def _leave_out(self) -> list[Log]:
        """Stop following the logs of runs beyond the limit, after saving their state."""
        with_runs = [log for log in self if log.run_set is not None]
        wall = self._time.time()
        surplus: dict[Path, LeftOut] = {}

        def followed() -> Iterator[Followed]:
            """The logs that may be left out: those of roots that do not answer stay."""
            for log in with_runs:
                if log.unread_since is None and not log.root.busy:
                    leave_out = partial(surplus.__setitem__, log.path)
                    yield Followed(self._known(log, wall), log.followed, leave_out)

        with self._lock:
            self._limit.enforce(sum(len(log.runs) for log in with_runs), followed)
        for log in with_runs:
            log.followed = True
        gone = [self.by_path[path] for path in surplus]
        for log in gone:
            log.save()
            self._drop(log)
            log.root.over[str(log.path)] = surplus[log.path]
        return gone

    def _known(self, log: Log, wall: float) -> LeftOut:
        return log.known(wall, duplicate=log.path in self._limit.duplicates)

    # The state of each run

    def _may_be_written(self, now: float, wall: float) -> list[Log]:
        """The logs whose writers are worth a look: a run folder may hold thousands of old texts."""
        found: list[Log] = []
        for log in self:
            if log.kind == "empty":  # a trainer may fail right behind its first words
                due = wall - log.found.changed < GROWING_SECONDS
            elif log.is_text:
                due = bool(log.writer) or log.quiet(now) < GROWING_SECONDS
            else:
                due = log.run_set is not None and log.quiet(now) < WRITER_SECONDS
            if due:
                found.append(log)
                if not self._writers.knows(log.file):
                    self._writers.remember(log.file, now, writer=log.writer)
        return found

    def update(self, judge: Judge, now: float) -> None:
        """Judge all runs, under the lock; logs whose runs have all left the pages are laid aside."""
        before, self._last, self.dormant = self._last, {}, 0
        found: list[Sighting] = []
        self.named_by_path = {log.path: log.relative for log in self if log.run_set and log.caught_up}
        for log in list(self):
            of_text = log.is_text and log.preamble is not None
            if not (log.run_set and log.caught_up) and not of_text:
                if log.is_text and self._writers.knows(log.file):
                    self._see_writer(log)
                continue
            writer = self._see_writer(log)
            states: set[str] = set()
            for key, run in log.run_set.runs.items() if log.run_set else [("", log.runs[0])]:
                late = log.unread_since is not None or log.root.busy
                state = before.get(run.serial) if late else None
                state = self._last[run.serial] = state or judge.state(run, _signs(log, key, run, writer, now))
                states.add(state)
                sighting = Sighting(
                    (log.path, key),
                    log.relative,
                    run,
                    state,
                    log.writer,
                    process=writer.process,
                    unread=log.unread_since,
                    appeared=log.appeared,
                    launch=log.launch,
                )
                if of_text:  # a run if it ended badly
                    sighting.text = log.written
                    if ended_before_a_step(run, state, writer=log.writer, launched=log.launch is not None):
                        found.append(sighting)
                    continue
                sighting.gone = writer.gone_since
                sighting.writers = frozenset([writer.process] if log.writer and writer.process else ())
                run.watched = run.watched or (state == "running" and log.writer is True)
                self.dormant += state == "dormant"
                if is_shown(state):
                    found.append(sighting)
            if of_text:
                continue
            log.priority = max((OF_STATE.get(state, Priority.UNSHOWN) for state in states), default=None)
            if states == {"forgotten"}:
                log.save()
                self._drop(log)
                log.root.aside[str(log.path)] = log.written
                log.root.searched.old += 1
        self.sightings = found

    def _see_writer(self, log: Log) -> Writer:
        """Note whether the log's writer is present; returns what is known about it."""
        writer = self._writers.of(log.file)
        if log.grew is not None:
            writer.grown(log.grew)
        log.writer = writer.present()
        if writer.confirmed and not writer.only_named:
            for run in log.runs:
                run.watched = True
        return writer

    def unstarted(self, runs: Iterable[Run], now: float) -> dict[str, float]:
        """The oldest log growing without a step and since when, unless a run made one since it appeared."""
        stepped = max((run.times.last for run in runs if run.times.last is not None), default=0.0)
        waiting = [
            log
            for log in self
            if log.grew is not None
            and now - log.grew < GROWING_SECONDS
            and log.writer is not False
            and log.appeared > stepped
            and not log.has_step
        ]
        oldest = min(waiting, key=lambda log: log.appeared, default=None)
        return {printable(oldest.relative): oldest.appeared} if oldest else {}

    # What the exporter serves about its files

    @property
    def hung(self) -> list[Mount]:
        """The roots that do not answer."""
        return [root.thread for root in self._roots if root.thread.hangs]

    def report(self, health: Health, wall: float) -> None:  # noqa: ARG002  (as of polled pages)
        """Add the files by kind, the runs that are left out, and bytes that are unread."""
        kinds = Counter(log.kind for log in self if not log.refusal)
        for root in self._roots:
            more = {"empty": root.searched.empty, "left_out": root.searched.left_out}
            kinds.update({**root.ignored.counts, **more})
            for left in root.over.values():
                health.leave_out(left.runs, live=left.priority is Priority.LIVE)
        health.files = +kinds
        health.files["old"] = sum(root.searched.old for root in self._roots)
        health.files["unreadable"] = len(self._refused())
        health.unread_bytes = sum(log.unread for log in self)

    def _refused(self) -> dict[Path, Refusal]:
        """What cannot be read now: logs, and what the search for them met."""
        found: dict[Path, Refusal] = {}
        for root in self._roots:
            found |= root.searched.refusals.by_path
        return found | {log.refusal.path: log.refusal for log in self if log.refusal}


def _signs(log: Log, key: str, run: Run, writer: Writer, now: float) -> Signs:
    """The signs of life of a run in a log; what is printed behind its last planned step is no step."""
    all_steps = 0.0
    if run.made_all_steps:
        since = log.quiet(now) + max(0.0, log.written - (run.times.last or log.written))
        all_steps = since if run.moved is None else now - run.moved
    return Signs(
        now - run.moved if key and run.moved is not None else log.quiet(now),
        None if writer.gone_since is None else now - writer.gone_since,
        None if writer.only_named else log.writer,
        log.launch.state if log.launch else None,
        all_steps,
        now - log.quiet(now) - run.ended_at if run.ended else 0.0,
    )


def _newest(followed: list[Log], new: list[Found], surplus: int) -> tuple[list[Found], list[Log]]:
    """Of files without a record that are followed, and new ones: those to follow now, and those to drop."""
    ranks: list[tuple[tuple[bool, float], Log | Found]] = [
        ((log.length > 0, max(log.written, log.found.changed)), log) for log in followed
    ]
    ranks += [((one.size > 0, one.changed), one) for one in new]
    least = {id(each) for _, each in heapq.nsmallest(surplus, ranks, key=lambda pair: pair[0])}
    return [one for one in new if id(one) not in least], [log for log in followed if id(log) in least]
