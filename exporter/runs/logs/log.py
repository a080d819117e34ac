"""One log below the watched folder: followed, recognised, and turned into runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from time import monotonic

from exporter.runs.files import launch
from exporter.runs.files.launch import Launch
from exporter.runs.files.notice import Refusal
from exporter.runs.files.state import RunSnapshots, Saved, State
from exporter.runs.formats import Source, recognise_first
from exporter.runs.formats.console import preamble
from exporter.runs.formats.prefixes import Prefixes
from exporter.runs.logs.find import Found
from exporter.runs.logs.search import Root
from exporter.runs.model.ends import GONE_SECONDS
from exporter.runs.model.exporter_health import Health
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.model.run_set import LIVE_SECONDS, LeftOut, Priority, RunSet, RunSets
from exporter.runs.readers.content import content, reader_of
from exporter.runs.readers.follow import Block, Reader
from exporter.runs.signals.record import Servers

IDLE_SECONDS = 2.0  # Files without a record are looked at less often: a run folder may hold thousands
SLOW_SECONDS = 1.0
"""A file system that took longer to answer hung, and what was read is of the time when it answered."""
GIVE_UP_BYTES = 64 * 1024 * 1024  # A text without a single record in so many bytes is not a trainer's log
_NOTHING = 0, False, None
"""The version of a text whose writer was never seen and that did not grow while it was followed."""


class Log:
    """A file that may be a trainer's log, or several that make up one.

    ``wall`` is in seconds since the epoch, ``steady`` in seconds of the steady clock.
    """

    def __init__(
        self,
        found: Found,
        states: State,
        health: Health,
        options: Options,
        run_sets: RunSets = RunSet,
        *,
        root: Root | None = None,
        saved: Saved | None = None,
    ) -> None:
        self.path, self.relative = found.path, found.relative
        self.found = found  # its files, as the last search saw them
        self.root = root or Root(str(found.root))  # what it lies below
        self.kind = (
            "empty"  # or binary, no_records (given up), log; until there is a record, what it is read as
        )
        self.run_set: RunSet | None = None
        self.preamble: Run | None = None  # the lines without a record so far, as a run without a step
        self.launch: Launch | None = None  # what the wrapper that writes it knows, if one does
        self.writer: bool | None = None  # whether one is present, as last known; None: none was ever seen
        self.grew: float | None = None  # steady, while it was followed; a late look goes by the file's time
        self.written = self.appeared = 0.0  # the file's time, and that of the first look
        self.looked = 0.0  # steady
        self.more = True  # there is more to read at once
        self.reading = False  # right now
        self.problem: str | None = None  # why it could not be read at the last look
        self.refusal: Refusal | None = None  # what has to be made readable for that
        self.unread_since: float | None = None  # since when its root hangs
        self.priority: Priority | None = None  # of its runs under the run limit, once they were judged
        self.followed = False  # it had runs at the last look
        self.must_be_saved = False  # what its runs know is nowhere else
        self._states, self._health, self._options, self._run_sets = states, health, options, run_sets
        self._reader: Reader | None = None
        self._source: Source | None = None
        self._prefixes: Prefixes | None = None
        self._carry: RunSnapshots | None = None
        self._known_before = saved
        self._saved: tuple[object, ...] = ()
        self._live_from: int | None = None
        self._quiet_from = self._read_at = self._unread_from = 0.0

    @property
    def file(self) -> Path:
        """The file that is read now."""
        return self._reader.path if self._reader else self.found.parts[-1]

    @property
    def ignored(self) -> bool:
        """Whether this file is of no interest as long as it is not replaced."""
        return self.kind in ("binary", "no_records")

    @property
    def caught_up(self) -> bool:
        """Whether the log was read to its end: what is added from then on arrives while we watch."""
        return self._live_from is not None

    @property
    def runs(self) -> Sequence[Run]:
        """Its runs; of a text without a record, the one that it may become."""
        if self.run_set is not None:
            return tuple(self.run_set.runs.values())
        return (self.preamble,) if self.preamble else ()

    @property
    def has_step(self) -> bool:
        """Whether any step was logged in it."""
        return self.run_set is not None and any(run.progress.first is not None for run in self.runs)

    @property
    def is_text(self) -> bool:
        """Whether it is a text without a record so far."""
        of_text = self.kind == "text" or (self.kind == "empty" and self.launch is not None)
        return self.run_set is None and of_text and self.caught_up

    @property
    def servers(self) -> tuple[Servers, ...]:
        """Those that a text names before its first record, or beside a log that has the records."""
        return self.preamble.servers if self.preamble else ()

    @property
    def unread(self) -> int:
        """Bytes of the file not read yet."""
        return self._reader.unread if self._reader and not self.ignored else 0

    @property
    def length(self) -> int:
        """Bytes that the file had when it was found, or by what was read of it since."""
        return max(self.found.size, self._reader.offset if self._reader else 0)

    def is_due(self, steady: float) -> bool:
        """Whether it is time to read it."""
        due = self.run_set is not None or self.more or steady - self.looked >= IDLE_SECONDS
        return due and not self.ignored

    def quiet(self, steady: float) -> float:
        """Seconds since the log last grew, also if the machine's clock was set since."""
        return steady - self._quiet_from

    def hangs(self, wall: float, steady: float) -> None:
        """Note that its root does not answer, and since when."""
        if self.unread_since is None:
            self.unread_since, self._unread_from = wall, steady

    def known(self, wall: float, *, duplicate: bool) -> LeftOut:
        """What the run limit goes by; a log not judged yet is live if it was written lately."""
        changed, priority = max(self.written, self.found.changed), self.priority
        if priority is None or not self.caught_up:
            priority = Priority.LIVE if wall - changed < LIVE_SECONDS else Priority.FINISHED
        elif duplicate:
            priority = min(priority, Priority.DUPLICATE)
        return LeftOut(priority, changed, len(self.runs))

    def read(self, wall: float, steady: float, lock: AbstractContextManager[object] | None = None) -> None:
        """Read one block; what it says is taken in while ``lock`` is held. Raises OSError."""
        self.looked, self.more, self.reading = steady, False, True
        self.appeared = self.appeared or wall
        try:
            asked = monotonic()  # the file system first: while the lock is held, nothing may wait for it
            if self._reader is None:
                self.kind = content(self.file)
                if self.kind not in ("empty", "binary"):
                    self._reader = reader_of(self.kind, lambda: self.found.parts)
                    self._prefixes = Prefixes() if self.kind in ("text", "compressed") else None
            if (reader := self._reader) is None:
                self.unread_since = None
                if self.kind == "empty":
                    self._reached_end()
            else:
                file = reader.path
                block = reader.poll(wall)
                size = reader.size if self._source is None else 0.0
                if self.caught_up and reader.path != file:
                    self.writer = None  # another start has another writer
                if (waited := monotonic() - asked) > SLOW_SECONDS:
                    wall, steady = wall + waited, steady + waited
                if block is not None or self.unread_since is not None:
                    with lock or nullcontext():
                        self._take(reader, block, size, wall, steady)
                self._read_at = wall
            self._read_launch(wall)
        finally:
            self.reading = False

    def _take(self, reader: Reader, block: Block | None, size: float, wall: float, steady: float) -> None:
        if block is not None:
            # Writers may set a file's time, and a server's clock may be another: what was written since the
            # last look, which saw nothing of it, is no older than that.
            if block.grown:
                late = wall - block.written
                late = min(late, wall - self._read_at) if self.caught_up else late
                self._quiet_from = steady - max(0.0, late)
                self.grew = self._quiet_from if self.caught_up else self.grew
            behind = self._live_from is not None and block.start + block.size > self._live_from
            live = behind and not block.restarted  # it holds bytes that were written while it was followed
            self._feed(reader, block, size, Clock(wall, steady, live=live, late=self.quiet(steady)))
            self.more = block.more and not self.ignored
            if not block.more:
                self._reached_end()
        if self.unread_since is not None:
            if block is None or not block.grown:  # not silence of the log and its runs: trainers waited too
                seconds = steady - self._unread_from
                self._quiet_from = min(steady, self._quiet_from + seconds)
                for run in self.runs:
                    run.exclude_gap(seconds, wall, steady)
            self.unread_since = None

    def _feed(self, reader: Reader, block: Block, size: float, clock: Clock) -> None:
        """Hand the events of a block to the runs."""
        health, dropped = self._health, self._health.dropped
        health.bytes_read += block.size
        health.lines_read += len(block.lines)
        dropped["too_long"] += block.too_long
        dropped["malformed"] += block.broken
        self.written = block.written
        if self._prefixes is not None:
            self._prefixes = Prefixes() if block.restarted else self._prefixes
            block.lines = self._prefixes.strip(block.lines)
        if block.restarted:
            # What the runs know so far is nowhere else now. What stands in the log already is history again:
            # a copy of a log is replaced as a whole.
            health.restarts += 1
            self._live_from = None
            if self.run_set is not None and self._source is not None:
                self._carry, self.must_be_saved = self.run_set.snapshot(), True
                self.run_set.emptied()
                self._source = self._source.again()
        if self._source is None:
            self._recognise(reader, block, size, clock)
        if self._source is not None and self.run_set is not None:
            parse, take = self._source.parse, self.run_set.take
            for line in block.lines:
                try:
                    for event in parse(line):
                        take(event, clock)
                except ValueError:  # noqa: PERF203  (one bad line must not end the block)
                    dropped["malformed"] += bool(line.strip())
            for event in () if block.more else self._source.flush():
                take(event, clock)

    def _recognise(self, reader: Reader, block: Block, size: float, clock: Clock) -> None:
        """Look for a first record; once there is one behind the first block, begin again with that."""
        mapped = frozenset(chain.from_iterable(self._options.keys.values()))
        self._source = source = recognise_first(block.lines, self.kind, mapped)
        saved = self._known_before
        if source is None:
            self._read_preamble(block, clock)
            if reader.offset > GIVE_UP_BYTES:
                self.kind = "no_records"
            return
        self.kind, self.preamble, self._known_before = "log", None, None
        watched, marks = [""] if clock.live else [], None
        if saved is not None:
            self.writer, marks = saved.writer, saved.marks
            self._carry = saved.before(reader.head, size)
            watched += saved.watched
        held = self._options, self._carry, watched
        self.run_set = self._run_sets(source.name, source.framework, *held, marks=marks)
        if block.start:
            reader.rewind()
            block.lines, block.more = [], True

    def _read_preamble(self, block: Block, clock: Clock) -> None:
        """A trainer has servers, and may fail, long before its first step."""
        if block.restarted:
            self.preamble = None
        for event in chain.from_iterable(map(preamble, block.lines)) if self.kind == "text" else ():
            if self.preamble is None:
                self.preamble, saved = Run("text", "", self._options), self._known_before
                if saved is not None and self.writer is None:
                    self.writer, self.preamble.watched = saved.writer, "" in saved.watched
            self.preamble.take(event, clock)
            self.preamble.watched |= clock.live

    def _reached_end(self) -> None:
        if self._live_from is None:
            self._live_from = self._reader.offset + self._reader.unread if self._reader else 0
        for run in self.run_set.runs.values() if self.run_set else ():
            run.times.caught_up(self.written)

    def _read_launch(self, wall: float) -> None:
        """A wrapped trainer is a run, whatever it prints."""
        found = launch.read(self.path)
        ended = found.ended if found else None
        if ended is not None and self.written > ended + GONE_SECONDS:
            found = None  # the log continues without a wrapper
        self.launch = found
        if found is None:
            return
        if self.run_set is None and self.preamble is None:
            self.preamble = Run("text", "", self._options)
        # An end while the exporter was down is news, one before its first look ever is history.
        if ended is None or (wall - ended < LIVE_SECONDS and ended >= self._states.since):
            for run in self.runs:
                run.watched = True

    def save(self) -> None:
        """Keep what a restart could not rebuild, if it changed and the log is not half read."""
        runs, begun = self.run_set, bool(self.preamble and self.preamble.watched)
        version: tuple[object, ...] = 0, begun, self.writer
        if runs is not None:
            version = runs.version(), tuple(runs.watched()), self.writer
        if not self.must_be_saved and (not self.caught_up or version in (self._saved, _NOTHING)):
            return
        read = (self._reader.head.hex(), self._reader.offset) if self._reader else ("", 0)
        if runs:
            known = self._carry, runs.snapshot()
            saved = Saved(*known, *read, runs.watched(), self.writer, runs.marks())
        else:  # what an earlier content of the log left stays for the first record
            before = self._known_before or Saved(None, {}, *read, [])
            watched = sorted({*before.watched, *([""] if begun else [])})
            saved = self._known_before = replace(before, writer=self.writer, watched=watched)
        self._states.save(self.path, saved, self.file, self.found.device)
        self._saved, self.must_be_saved = version, False
