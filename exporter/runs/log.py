"""One log below the watched folder: followed, recognised, and turned into a run."""

from __future__ import annotations

from typing import Any

from exporter.runs.discover import Found, content
from exporter.runs.follow import Block, Follower
from exporter.runs.health import Health
from exporter.runs.refusal import Refusal
from exporter.runs.run import Clock, Run
from exporter.runs.sources import recognise
from exporter.runs.statefile import Saved, StateFolder

IDLE_SECONDS = 2.0
"""Files without a record are looked at less often: a run folder may hold thousands."""

GIVE_UP_BYTES = 64 * 1024 * 1024
"""A text without a single record for that long is no log of a trainer."""


class Log:
    """A file that may be a trainer's log.

    ``kind`` is ``empty``, ``binary``, ``text`` (no record yet), ``no_records`` (given up) or
    ``log``. ``grew`` is when it last grew before our eyes, in seconds of the steady clock;
    ``written`` its own time of change, in seconds since the epoch. ``more``: there is more to read
    at once; ``looked``: when it was read last. ``problem``: why it could not be read then;
    ``refusal``: what has to be made readable for that. ``writer``: is a writer there, as last known;
    ``None`` if none was ever seen.
    """

    def __init__(self, found: Found, states: StateFolder, health: Health, hold: float) -> None:
        self.path = found.path
        self.relative = found.relative
        self.run: Run | None = None
        self.kind = "empty"
        self.grew: float | None = None
        self.written = 0.0
        self.more = True
        self.looked = 0.0
        self.problem: str | None = None
        self.refusal: Refusal | None = None
        self.writer: bool | None = None
        self._found = found
        self._follower = Follower(found.path)
        self._live_from: int | None = None
        self._states = states
        self._health = health
        self._hold = hold
        self._carry: dict[str, Any] | None = None
        self._saved: tuple[object, ...] = ()

    @property
    def ignored(self) -> bool:
        """Is this file of no interest, as long as it is not replaced?"""
        return self.kind in ("binary", "no_records")

    def is_due(self, steady: float) -> bool:
        """Is it time to look at it? ``steady`` in seconds of the steady clock."""
        if self.ignored:
            return False
        return self.run is not None or self.more or steady - self.looked >= IDLE_SECONDS

    @property
    def caught_up(self) -> bool:
        """Was the log read to its end? What is added from then on arrives before our eyes."""
        return self._live_from is not None

    @property
    def unread(self) -> int:
        """Bytes of the file not read yet."""
        return 0 if self.ignored else self._follower.unread

    def replaced(self, found: Found) -> bool:
        """Is what was found under this log's path another file than the one that is ignored?"""
        size = max(self._found.size, self._follower.offset)
        return self.ignored and (found.inode != self._found.inode or found.size < size)

    def quiet(self, wall: float, steady: float) -> float:
        """Seconds since the log last grew."""
        return max(0.0, wall - self.written if self.grew is None else steady - self.grew)

    def read(self, wall: float, steady: float) -> None:
        """Read one block.

        Raises:
            OSError: the file is gone or cannot be read.
        """
        self.looked, self.more = steady, False
        if self.kind == "empty" and not self._has_text():
            return
        block = self._follower.read(wall)
        if block is None:
            return
        self._note(block, steady)
        self._lines(block, Clock(wall, steady, live=self._is_live(block)))
        self.more = block.more
        if not block.more:
            self._reached_end()

    def _has_text(self) -> bool:
        self.kind = content(self.path)
        if self.kind == "empty":
            self._reached_end()
        return self.kind == "text"

    def _note(self, block: Block, steady: float) -> None:
        self._health.bytes_read += block.size
        self._health.lines_read += len(block.lines)
        self._health.dropped["too_long"] += block.too_long
        self.written = block.written
        if self.caught_up:
            self.grew = steady
        if block.restarted:
            self._restarted()

    def _restarted(self) -> None:
        """The log was emptied: what the run knows so far is nowhere else now.

        What stands in the log already is history again: a copy of a log is replaced as a whole.
        """
        self._health.restarts += 1
        self._live_from = None
        if self.run is not None:
            self._carry = self.run.kept()
            self.run.progress.emptied = True
            self._write(self.run)

    def _is_live(self, block: Block) -> bool:
        return self._live_from is not None and block.start >= self._live_from

    def _lines(self, block: Block, clock: Clock) -> None:
        if self.run is None and not self._recognised(block):
            return
        if self.run is not None:
            self._feed(self.run, block.lines, clock)

    def _feed(self, run: Run, lines: list[bytes], clock: Clock) -> None:
        read, take = run.source.read, run.take
        for line in lines:
            try:
                for event in read(line):
                    take(event, clock)
            except ValueError:  # noqa: PERF203  (one bad line must not end the block)
                self._health.dropped["malformed"] += bool(line.strip())

    def _recognised(self, block: Block) -> bool:
        """Look for a first record; once there is one, read the log again from its start."""
        source = next((source for line in block.lines if (source := recognise(line))), None)
        if source is None:
            if self._follower.offset > GIVE_UP_BYTES:
                self.kind = "no_records"
            return False
        self.run, self.kind = Run(source, self._hold), "log"
        self._restore(self.run)
        self.run.watched = self.run.watched or self._is_live(block)
        if block.start == 0:
            return True
        self._follower.rewind()
        block.more = True
        return False

    def _restore(self, run: Run) -> None:
        saved = self._states.load(self.path)
        if saved is None:
            return
        run.watched, self.writer = saved.watched, saved.writer
        self._carry = saved.before(self._follower.head, self._follower.offset + self._follower.unread)
        if self._carry is not None:
            run.restore(self._carry)

    def _reached_end(self) -> None:
        if self._live_from is None:
            self._live_from = self._follower.offset
        if self.run is not None:
            self.run.times.caught_up(self.written)

    def save(self) -> None:
        """Keep what an exporter restart could not rebuild, if it changed since the last time.

        Half a log is no news: what was kept of the whole is worth more.
        """
        run = self.run
        if run is not None and self.caught_up and self._version(run) != self._saved:
            self._write(run)

    def _version(self, run: Run) -> tuple[object, ...]:
        return run.version, run.watched, self.writer

    def _write(self, run: Run) -> None:
        head, offset = self._follower.head.hex(), self._follower.offset
        try:
            saved = Saved(self._carry, run.kept(), head, offset, run.watched, self.writer)
            self._states.save(self.path, saved)
        except OSError:
            self._health.state_errors += 1
            return
        self._saved = self._version(run)

    def forget(self) -> None:
        """Nothing of this log is needed any more."""
        try:
            self._states.forget(self.path)
        except OSError:
            self._health.state_errors += 1
