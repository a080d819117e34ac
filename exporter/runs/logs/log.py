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
from exporter.runs.readers.content import Reader, content, reader_of
from exporter.runs.readers.follow import Block
from exporter.runs.signals.record import Servers

IDLE_SECONDS = 2.0  # Files without a record are looked at less often: a run folder may hold thousands
SLOW_SECONDS = 1.0
"""A file system that took longer to answer hung, and what was read is of the time when it answered."""
GIVE_UP_BYTES = 64 * 1024 * 1024  # A text without a single record in so many bytes is not a trainer's log
_NOTHING = 0, False, None
"""The version of a text whose writer was never seen and that did not grow while it was followed."""


class Log:
    """A file that may be a trainer's log, or several that make up one.

    ``kind`` is what the file holds: ``empty``, ``binary``, ``no_records`` (given up), ``log``, or
    what it is read as until there is a record. ``grew`` is when it last grew while it was followed, in
    seconds of the steady clock: a look that comes late dates growth by the file's time. ``written`` is
    that time and ``appeared`` when it was first looked at, in seconds since the epoch.
    ``more``: there is more to read at once; ``looked``: when it was read last. ``problem``: why it
    could not be read then; ``refusal``: what has to be made readable for that. ``writer``: whether a
    writer is present, as last known; ``None`` if none was ever seen. ``preamble``: the lines without a
    record so far, as a run without a step. ``root``: what it lies below; ``reading``: it is being read
    right now. ``unread_since``: since when it cannot be read, as its root hangs, in seconds since the epoch.
    ``found``: its files, as the last search saw them. ``must_be_saved``: what its runs know is nowhere else.
    ``priority``: that of its runs under the run limit, once they were judged; ``followed``: it had runs at
    the last look. ``launch``: what the wrapper that writes it knows, if one does.
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
        self.path = found.path
        self.relative = found.relative
        self.run_set: RunSet | None = None
        self.kind = "empty"
        self.grew: float | None = None
        self.written = self.appeared = 0.0
        self.more = True
        self.looked = 0.0
        self.problem: str | None = None
        self.refusal: Refusal | None = None
        self.writer: bool | None = None
        self.preamble: Run | None = None
        self.root = root or Root(str(found.root))
        self.reading = False
        self.unread_since: float | None = None
        self.priority: Priority | None = None
        self.followed = False
        self.launch: Launch | None = None
        self._unread_from = 0.0
        self.found = found
        self._known_before = saved
        self.must_be_saved = False
        self._reader: Reader | None = None
        self._source: Source | None = None
        self._prefixes: Prefixes | None = None
        self._live_from: int | None = None
        self._quiet_from = 0.0
        self._read_at = 0.0
        self._states = states
        self._health = health
        self._options = options
        self._run_sets = run_sets
        self._carry: RunSnapshots | None = None
        self._saved: tuple[object, ...] = ()

    @property
    def file(self) -> Path:
        """The file that is read now."""
        return self._reader.path if self._reader else self.found.parts[-1]

    @property
    def ignored(self) -> bool:
        """Whether this file is of no interest as long as it is not replaced."""
        return self.kind in ("binary", "no_records")

    def is_due(self, steady: float) -> bool:
        """Whether it is time to read it; ``steady`` in seconds of the steady clock."""
        if self.ignored:
            return False
        return self.run_set is not None or self.more or steady - self.looked >= IDLE_SECONDS

    @property
    def caught_up(self) -> bool:
        """Whether the log was read to its end: what is added from then on arrives while we watch."""
        return self._live_from is not None

    @property
    def has_step(self) -> bool:
        """Whether any step was logged in it."""
        runs = self.run_set.runs.values() if self.run_set else ()
        return any(run.progress.first is not None for run in list(runs))

    @property
    def unread(self) -> int:
        """Bytes of the file not read yet."""
        return self._reader.unread if self._reader and not self.ignored else 0

    @property
    def runs(self) -> Sequence[Run]:
        """Its runs; of a text without a record, the one that it may become."""
        if self.run_set is not None:
            return tuple(self.run_set.runs.values())
        return (self.preamble,) if self.preamble else ()

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
    def length(self) -> int:
        """Bytes that the file had when it was found, or by what was read of it since."""
        return max(self.found.size, self._reader.offset if self._reader else 0)

    def quiet(self, steady: float) -> float:
        """Seconds since the log last grew, also if the machine's clock was set since."""
        return steady - self._quiet_from

    def known(self, wall: float, *, duplicate: bool) -> LeftOut:
        """What the run limit goes by; a log not judged yet is live if it was written lately."""
        changed = max(self.written, self.found.changed)
        priority = self.priority
        if priority is not None and duplicate:
            priority = min(priority, Priority.DUPLICATE)
        if priority is None or not self.caught_up:
            priority = Priority.LIVE if wall - changed < LIVE_SECONDS else Priority.FINISHED
        return LeftOut(priority, changed, len(self.runs))

    def read(self, wall: float, steady: float, lock: AbstractContextManager[object] | None = None) -> None:
        """Read one block; what it says is taken in while ``lock`` is held. Raises OSError."""
        self.looked, self.more = steady, False
        self.appeared = self.appeared or wall
        self.reading = True
        try:
            self._read(wall, steady, lock or nullcontext())
            self._read_launch(wall)
        finally:
            self.reading = False

    def _read(self, wall: float, steady: float, lock: AbstractContextManager[object]) -> None:
        """Ask the file system first: while the lock is held, nothing may wait for it."""
        asked = monotonic()
        if self._reader is None:
            self.kind = content(self.file)
            if self.kind == "empty":
                self._reached_end()
            elif self.kind != "binary":
                self._reader = reader_of(self.kind, lambda: self.found.parts)
                self._prefixes = Prefixes() if self.kind in ("text", "compressed") else None
        if self._reader is None:
            self.unread_since = None
            return
        file = self.file
        block = self._reader.poll(wall)
        size = self._reader.size if self._source is None else 0.0
        if self.caught_up and self.file != file:
            self.writer = None  # another start has another writer
        if (waited := monotonic() - asked) > SLOW_SECONDS:
            wall, steady = wall + waited, steady + waited
        if block is not None or self.unread_since is not None:
            with lock:
                if block is not None:
                    self._take(block, self._clock(block, wall, steady), size)
                if self.unread_since is not None:
                    self._exclude_gap(wall, steady, grown=block is not None and block.grown)
        self._read_at = wall

    def _read_launch(self, wall: float) -> None:
        """A wrapped trainer is a run, whatever it prints."""
        found = launch.read(self.path)
        if found is not None and found.ended is not None and self.written > found.ended + GONE_SECONDS:
            found = None  # the log continues without a wrapper
        self.launch = found
        if self.launch is None:
            return
        if self.run_set is None and self.preamble is None:
            self.preamble = Run("text", "", self._options)
        # An end while the exporter was down is news, one before its first look ever is history.
        ended = self.launch.ended
        if ended is None or (wall - ended < LIVE_SECONDS and ended >= self._states.since):
            for run in self.runs:
                run.watched = True

    def _exclude_gap(self, wall: float, steady: float, *, grown: bool) -> None:
        """Do not count unreadable time as silence of a log and its runs: trainers waited too."""
        if not grown:
            seconds = steady - self._unread_from
            self._quiet_from = min(steady, self._quiet_from + seconds)
            for run in self.runs:
                run.exclude_gap(seconds, wall, steady)
        self.unread_since = None

    def hangs(self, wall: float, steady: float) -> None:
        """Note that its root does not answer, and since when."""
        if self.unread_since is None:
            self.unread_since, self._unread_from = wall, steady

    def _clock(self, block: Block, wall: float, steady: float) -> Clock:
        """When the block was written.

        No earlier than the last look, which saw nothing of it: writers may set a file's time, and a server's
        clock may be another.
        """
        if block.grown:
            late = wall - block.written
            late = min(late, wall - self._read_at) if self.caught_up else late
            self._quiet_from = steady - max(0.0, late)
            if self.caught_up:
                self.grew = self._quiet_from
        return Clock(wall, steady, live=self._is_live(block), late=self.quiet(steady))

    def _is_live(self, block: Block) -> bool:
        """Whether it holds bytes that were written while the log was followed."""
        return self._live_from is not None and block.end > self._live_from and not block.restarted

    def _take(self, block: Block, clock: Clock, size: float) -> None:
        self._health.bytes_read += block.size
        self._health.lines_read += len(block.lines)
        self._health.dropped["too_long"] += block.too_long
        self._health.dropped["malformed"] += block.broken
        self.written = block.written
        if self._prefixes is not None:
            self._prefixes = Prefixes() if block.restarted else self._prefixes
            block.lines = self._prefixes.strip(block.lines)
        if block.restarted:
            # What the runs know so far is nowhere else now. What stands in the log already is history again:
            # a copy of a log is replaced as a whole.
            self._health.restarts += 1
            self._live_from = None
            if self.run_set is not None and self._source is not None:
                self._carry = self.run_set.snapshot()
                self.run_set.emptied()
                self._source = self._source.again()
                self.must_be_saved = True
        if self._source is not None or self._recognised(block, clock, size):
            self._feed(block, clock)
        self.more = block.more and not self.ignored
        if not block.more:
            self._reached_end()

    def _feed(self, block: Block, clock: Clock) -> None:
        source, run_set = self._source, self.run_set
        if source is None or run_set is None:
            return
        parse, take = source.parse, run_set.take
        for line in block.lines:
            try:
                for event in parse(line):
                    take(event, clock)
            except ValueError:  # noqa: PERF203  (one bad line must not end the block)
                self._health.dropped["malformed"] += bool(line.strip())
        if not block.more:
            for event in source.flush():
                take(event, clock)

    def _recognised(self, block: Block, clock: Clock, size: float) -> bool:
        """Look for a first record; once there is one, read the log again from its start."""
        reader, mapped = self._reader, chain.from_iterable(self._options.keys.values())
        source = recognise_first(block.lines, self.kind, frozenset(mapped))
        if source is None or reader is None:
            self._read_preamble(block, clock)
            if reader and reader.offset > GIVE_UP_BYTES:
                self.kind = "no_records"
            return False
        self._source, self.kind, self.preamble = source, "log", None
        saved, self._known_before = self._known_before, None
        watched, marks = [""] if self._is_live(block) else [], None
        if saved is not None:
            self.writer = saved.writer
            self._carry = saved.before(reader.head, size)
            watched, marks = watched + saved.watched, saved.marks
        self.run_set = self._run_sets(
            source.name, source.framework, self._options, self._carry, watched, marks=marks
        )
        if block.start == 0:
            return True
        reader.rewind()
        block.more = True
        return False

    def _read_preamble(self, block: Block, clock: Clock) -> None:
        """A trainer has servers, and may fail, long before its first step."""
        if block.restarted:
            self.preamble = None
        if self.kind != "text":
            return
        for event in chain.from_iterable(map(preamble, block.lines)):
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

    def save(self) -> None:
        """Keep what a restart could not rebuild, if it changed and the log is not half read."""
        if self.run_set is None:
            version: tuple[object, ...] = 0, bool(self.preamble and self.preamble.watched), self.writer
        else:
            version = self.run_set.version(), tuple(self.run_set.watched()), self.writer
        if not self.must_be_saved and (not self.caught_up or version in (self._saved, _NOTHING)):
            return
        read = (self._reader.head.hex(), self._reader.offset) if self._reader else ("", 0)
        if self.run_set:
            saved = Saved(
                self._carry,
                self.run_set.snapshot(),
                *read,
                self.run_set.watched(),
                self.writer,
                self.run_set.marks(),
            )
        else:  # what an earlier content of the log left stays for the first record
            before = self._known_before or Saved(None, {}, *read, [])
            watched = {*before.watched, *([""] if self.preamble and self.preamble.watched else [])}
            saved = self._known_before = replace(before, writer=self.writer, watched=sorted(watched))
        self._states.save(self.path, saved, self.file, self.found.device)
        self._saved, self.must_be_saved = version, False
