"""One log below the watched folder: followed, recognised, and turned into runs."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from time import monotonic

from exporter.runs.files.access import Refusal
from exporter.runs.files.mounts import HungError, Mount
from exporter.runs.files.state_file import Kept, Saved, StateFolder
from exporter.runs.logs.find import Found
from exporter.runs.logs.preamble import Preamble
from exporter.runs.model.health import Health
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.model.run_set import RunSet, RunSets
from exporter.runs.readers import Reader, reader_of
from exporter.runs.readers.block import Block
from exporter.runs.readers.content import content
from exporter.runs.signals.record import Servers
from exporter.runs.sources import Source, recognise_first
from exporter.runs.sources.console import preamble

IDLE_SECONDS = 2.0
"""Files without a record are looked at less often: a run folder may hold thousands."""

SLOW_SECONDS = 1.0
"""A file system that took longer to answer hung, and what was read is of the time when it answered."""

GIVE_UP_BYTES = 64 * 1024 * 1024
"""A text without a single record in so many bytes is not a trainer's log."""

_NOTHING = 0, False, None
"""The version of a text whose writer was never seen and that had no news while it was followed."""


class Log:
    """A file that may be a trainer's log, or several that make up one.

    ``kind`` is what the file holds: ``empty``, ``binary``, ``no_records`` (given up), ``log``, or
    what it is read as until there is a record. ``grew`` is when it last grew while it was followed, in
    seconds of the steady clock: a look that comes late dates growth by the file's time. ``written`` is
    that time and ``appeared`` when it was first looked at, in seconds since the epoch.
    ``more``: there is more to read at once; ``looked``: when it was read last. ``problem``: why it
    could not be read then; ``refusal``: what has to be made readable for that. ``writer``: is a
    writer there, as last known; ``None`` if none was ever seen. ``preamble``: what is known of the
    trainer of a text that has no record yet. ``mount``: what it lies on; ``reading``: it is being read
    right now. ``unread_since``: since when it cannot be read, as its mount hangs, in seconds since the epoch.
    ``priority``: how much its runs matter where there are too many (see ``limit``), once they were judged.
    """

    def __init__(
        self,
        found: Found,
        states: StateFolder,
        health: Health,
        options: Options,
        rosters: RunSets = RunSet,
        *,
        saved: Saved | None = None,
    ) -> None:
        self.path = found.path
        self.relative = found.relative
        self.roster: RunSet | None = None
        self.kind = "empty"
        self.grew: float | None = None
        self.written = self.appeared = 0.0
        self.more = True
        self.looked = 0.0
        self.problem: str | None = None
        self.refusal: Refusal | None = None
        self.writer: bool | None = None
        self.preamble: Preamble | None = None
        self.mount: Mount | None = None
        self.reading = False
        self.unread_since: float | None = None
        self.priority: int | None = None
        self._unread_from = 0.0
        self._found = found
        self._known_before = saved
        self._emptied = False
        self._reader: Reader | None = None
        self._source: Source | None = None
        self._live_from: int | None = None
        self._quiet_from = 0.0
        self._read_at = 0.0
        self._states = states
        self._health = health
        self._options = options
        self._rosters = rosters
        self._carry: Kept | None = None
        self._saved: tuple[object, ...] = ()

    @property
    def file(self) -> Path:
        """The file that is read now."""
        return self._reader.path if self._reader else self._found.parts[-1]

    @property
    def ignored(self) -> bool:
        """Is this file of no interest, as long as it is not replaced?"""
        return self.kind in ("binary", "no_records")

    def is_due(self, steady: float) -> bool:
        """Is it time to look at it? ``steady`` in seconds of the steady clock."""
        if self.ignored:
            return False
        return self.roster is not None or self.more or steady - self.looked >= IDLE_SECONDS

    @property
    def caught_up(self) -> bool:
        """Was the log read to its end? What is added from then on arrives while the exporter watches."""
        return self._live_from is not None

    @property
    def has_step(self) -> bool:
        """Was any step logged in it?"""
        runs = self.roster.runs.values() if self.roster else ()
        return any(run.progress.first is not None for run in runs)

    @property
    def unread(self) -> int:
        """Bytes of the file not read yet."""
        return self._reader.unread if self._reader and not self.ignored else 0

    @property
    def runs(self) -> Collection[Run]:
        """Its runs; of a text without a record, the one that it may become."""
        if self.roster is not None:
            return self.roster.runs.values()
        return (self.preamble.run,) if self.preamble else ()

    @property
    def changed(self) -> float:
        """When the file was written last before it was found, in seconds since the epoch."""
        return self._found.changed

    @property
    def is_text(self) -> bool:
        """Is it a text without a record so far?"""
        return self.roster is None and self.kind == "text" and self.caught_up

    @property
    def servers(self) -> tuple[Servers, ...]:
        """Those that a text names before its first record, or beside a log that has the records."""
        return self.preamble.run.servers if self.preamble else ()

    @property
    def inode(self) -> int:
        """The file's, as it was found."""
        return self._found.inode

    @property
    def length(self) -> int:
        """Bytes that the file had when it was found, or by what was read of it since."""
        return max(self._found.size, self._reader.offset if self._reader else 0)

    def found_again(self, found: Found) -> None:
        """Its files may be more, or others, by now."""
        if found.parts != self._found.parts:
            self._found = found

    def quiet(self, steady: float) -> float:
        """Seconds since the log last grew, also if the machine's clock was set since."""
        return steady - self._quiet_from

    def read(self, wall: float, steady: float, lock: AbstractContextManager[object] | None = None) -> None:
        """Read one block; what it says is taken in while ``lock`` is held.

        Raises:
            OSError: the file is gone or cannot be read.
        """
        self.looked, self.more = steady, False
        self.appeared = self.appeared or wall
        self.reading = True
        try:
            self._read(wall, steady, lock or nullcontext())
        finally:
            self.reading = False

    def _read(self, wall: float, steady: float, lock: AbstractContextManager[object]) -> None:
        """Ask the file system first: while the lock is held, nothing may wait for it."""
        asked = monotonic()
        if self._reader is None and not self._open():
            self.unread_since = None
            return
        file = self.file
        block = self._reader.poll(wall) if self._reader else None
        size = self._reader.size if self._reader and self._source is None else 0.0
        if self.caught_up and self.file != file:
            self.writer = None  # another start has another writer
        if (waited := monotonic() - asked) > SLOW_SECONDS:
            wall, steady = wall + waited, steady + waited
        if block is not None or self.unread_since is not None:
            with lock:
                if block is not None:
                    self._take(block, self._clock(block, wall, steady), size)
                if self.unread_since is not None:
                    self._excuse(wall, steady, grown=block is not None and block.grown)
        self._read_at = wall

    def hangs(self, wall: float, steady: float) -> None:
        """Its mount does not answer, and did not for some time before."""
        if self.unread_since is None:
            self.unread_since, self._unread_from = wall, steady

    def _excuse(self, wall: float, steady: float, *, grown: bool) -> None:
        """A log that could not be read was not silent, nor were its runs: trainers waited as well."""
        if not grown:
            seconds = steady - self._unread_from
            self._quiet_from = min(steady, self._quiet_from + seconds)
            for run in self.runs:
                run.excuse(seconds, wall, steady)
        self.unread_since = None

    def _open(self) -> bool:
        """Look what the file holds; is there anything to read in it?"""
        self.kind = content(self.file)
        if self.kind == "empty":
            self._reached_end()
            return False
        if self.kind != "binary":
            self._reader = reader_of(self.kind, lambda: self._found.parts)
        return self._reader is not None

    def _clock(self, block: Block, wall: float, steady: float) -> Clock:
        """When the block was written: no earlier than the last look, which saw nothing of it.

        Some writers set a file's time, and a server's clock may be another; between two looks that
        follow each other at once neither matters.
        """
        if block.grown:
            late = wall - block.written
            late = min(late, wall - self._read_at) if self.caught_up else late
            self._quiet_from = steady - max(0.0, late)
            if self.caught_up:
                self.grew = self._quiet_from
        return Clock(wall, steady, live=self._is_live(block), late=self.quiet(steady))

    def _take(self, block: Block, clock: Clock, size: float) -> None:
        self._note(block)
        if self._source is not None or self._recognised(block, clock, size):
            self._feed(block, clock)
        self.more = block.more and not self.ignored
        if not block.more:
            self._reached_end()

    def _note(self, block: Block) -> None:
        self._health.bytes_read += block.size
        self._health.lines_read += len(block.lines)
        self._health.dropped["too_long"] += block.too_long
        self._health.dropped["malformed"] += block.broken
        self.written = block.written
        if block.restarted:
            self._restarted()

    def _restarted(self) -> None:
        """The log was emptied: what the runs know so far is nowhere else now.

        What stands in the log already is history again: a copy of a log is replaced as a whole.
        """
        self._health.restarts += 1
        self._live_from = None
        if self.roster is not None and self._source is not None:
            self._carry = self.roster.kept()
            self.roster.emptied()
            self._source = type(self._source)()
            self._emptied = True

    def _is_live(self, block: Block) -> bool:
        """Does it hold bytes that were written while the log was followed?"""
        return self._live_from is not None and block.end > self._live_from and not block.restarted

    def _feed(self, block: Block, clock: Clock) -> None:
        source, roster = self._source, self.roster
        if source is None or roster is None:
            return
        parse, take = source.parse, roster.take
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
        reader = self._reader
        source = recognise_first(block.lines, self.kind)
        if source is None or reader is None:
            self._listen(block, clock)
            if reader and reader.offset > GIVE_UP_BYTES:
                self.kind = "no_records"
            return False
        self._source, self.kind, self.preamble = source, "log", None
        self.roster = self._known(source, reader.head, size, live=self._is_live(block))
        if block.start == 0:
            return True
        reader.rewind()
        block.more = True
        return False

    def _listen(self, block: Block, clock: Clock) -> None:
        """A trainer has servers, and may fail, long before its first step."""
        if block.restarted:
            self.preamble = None
        if self.kind == "text":
            for event in chain.from_iterable(map(preamble, block.lines)):
                self.preamble = self.preamble or self._preamble()
                self.preamble.take(event, clock)

    def _preamble(self) -> Preamble:
        """A run without a step, with what was known of its writer before."""
        begun = Preamble(self._options)
        saved = self._known_before
        if saved is not None and self.writer is None:
            self.writer, begun.run.watched = saved.writer, "" in saved.watched
        return begun

    def _known(self, source: Source, head: bytes, size: float, *, live: bool) -> RunSet:
        """The runs of the log, with what was known of them before."""
        saved, self._known_before = self._known_before, None
        watched, marks = [""] if live else [], None
        if saved is not None:
            self.writer = saved.writer
            self._carry = saved.before(head, size)
            watched, marks = watched + saved.watched, saved.marks
        return self._rosters(source.name, source.framework, self._options, self._carry, watched, marks=marks)

    def _reached_end(self) -> None:
        if self._live_from is None:
            self._live_from = self._reader.offset + self._reader.unread if self._reader else 0
        for run in self.roster.runs.values() if self.roster else ():
            run.times.caught_up(self.written)

    def save(self) -> None:
        """Keep what an exporter restart could not rebuild, if it changed since the last time.

        Of a log that is half read, what was saved of the whole is worth more.

        Raises:
            HungError: the state folder does not answer.
        """
        if self._emptied or (self.caught_up and self._version() not in (self._saved, _NOTHING)):
            self._write()

    @property
    def must_be_saved(self) -> bool:
        """Is what its runs know nowhere else now?"""
        return self._emptied

    def _version(self) -> tuple[object, ...]:
        if self.roster is None:
            return 0, bool(self.preamble and self.preamble.run.watched), self.writer
        return self.roster.version(), tuple(self.roster.watched()), self.writer

    def _write(self) -> None:
        saved = self._state(self.roster) if self.roster else self._state_of_text()
        try:
            self._states.save(self.path, saved, self.file, self.mount.point if self.mount else "")
        except OSError as error:
            self._health.state_errors += 1
            if isinstance(error, HungError):
                raise
            return
        self._saved, self._emptied = self._version(), False

    def _state(self, roster: RunSet) -> Saved:
        known = (roster.kept(), *self._content, roster.watched(), self.writer, roster.marks())
        return Saved(self._carry, *known)

    def _state_of_text(self) -> Saved:
        """Whatever an earlier content of the log left is kept for the first record."""
        saved = self._known_before or Saved(None, {}, *self._content, [])
        watched = {*saved.watched, *([""] if self.preamble and self.preamble.run.watched else [])}
        self._known_before = replace(saved, writer=self.writer, watched=sorted(watched))
        return self._known_before

    @property
    def _content(self) -> tuple[str, int]:
        return (self._reader.head.hex(), self._reader.offset) if self._reader else ("", 0)

    def forget(self) -> None:
        """Nothing of this log is needed any more."""
        try:
            self._states.forget(self.path)
        except OSError:
            self._health.state_errors += 1
