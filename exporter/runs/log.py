"""One log below the watched folder: followed, recognised, and turned into a run."""

from __future__ import annotations

from exporter.runs.discover import Found, looks_like_text
from exporter.runs.follow import Block, Follower
from exporter.runs.health import Health
from exporter.runs.names import run_name
from exporter.runs.run import Clock, Run
from exporter.runs.sources import recognise
from exporter.runs.statefile import Saved, StateFolder

GIVE_UP_BYTES = 64 * 1024 * 1024
"""A text without a single record for that long is no log of a trainer."""


class Log:
    """A file that may be a trainer's log.

    ``grew`` is when it last grew before our eyes, in seconds of the steady clock; ``written`` its
    own time of change, in seconds since the epoch.
    """

    def __init__(self, found: Found, states: StateFolder, health: Health) -> None:
        self.path = found.path
        self.relative = found.relative
        self.short_name = run_name(found.relative)
        self.run: Run | None = None
        self.caught_up = False
        self.kind = "unrecognised"
        self.grew: float | None = None
        self.written = 0.0
        self._follower = Follower(found.path)
        self._live_from: int | None = None
        self._states = states
        self._health = health
        self._carry: dict[str, object] | None = None
        self._saved_version = -1

    @property
    def ignored(self) -> bool:
        """Is this file of no interest, as long as it is not replaced?"""
        return self.kind in ("binary", "no_records")

    @property
    def unread(self) -> int:
        """Bytes of the file not read yet."""
        return 0 if self.ignored else self._follower.unread

    def quiet(self, wall: float, steady: float) -> float:
        """Seconds since the log last grew."""
        return max(0.0, wall - self.written if self.grew is None else steady - self.grew)

    def read(self, wall: float, steady: float) -> bool:
        """Read one block; true if there is more to read at once.

        Raises:
            OSError: the file is gone or cannot be read.
        """
        if self.kind == "unrecognised" and not self._follower.offset and not looks_like_text(self.path):
            self.kind = "binary"
            return False
        block = self._follower.read(wall)
        if block is None:
            return False
        self._note(block, steady)
        self._lines(block, Clock(wall, steady, live=self._is_live(block)))
        if not block.more:
            self._reached_end()
        return block.more

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
        """The log was emptied: what the run knows so far is nowhere else now."""
        self._health.restarts += 1
        self._live_from = 0 if self.caught_up else None
        if self.run is not None:
            self._carry = self.run.kept()
            self.save()

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
        self.run, self.kind = Run(source), "log"
        self._restore(self.run)
        if block.start == 0:
            return True
        self._follower.rewind()
        block.more = True
        return False

    def _restore(self, run: Run) -> None:
        saved = self._states.load(self.path)
        if saved is None:
            return
        run.watched = saved.watched
        self._carry = saved.before(self._follower.head, self.path.stat().st_size)
        if self._carry is not None:
            run.restore(self._carry)

    def _reached_end(self) -> None:
        if self._live_from is None:
            self._live_from = self._follower.offset
        self.caught_up = True
        if self.run is not None:
            self.run.times.caught_up(self.written)

    def save(self) -> None:
        """Keep what an exporter restart could not rebuild, if it changed since the last time."""
        run = self.run
        if run is None or run.version == self._saved_version:
            return
        head, offset = self._follower.head.hex(), self._follower.offset
        try:
            self._states.save(self.path, Saved(self._carry, run.kept(), head, offset, run.watched))
        except OSError:
            self._health.state_errors += 1
            return
        self._saved_version = run.version

    def forget(self) -> None:
        """Nothing of this log is needed any more."""
        self._states.forget(self.path)
