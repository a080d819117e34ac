"""Follow one growing file, line by line, whatever its writer does to it.

Files are polled, not watched with inotify: run folders lie on NFS, in bind mounts and in containers,
where change events do not arrive. Nothing of the file is kept in memory between two polls.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = 4 * 1024 * 1024
"""Bytes read at a time, and the longest line that is read at all."""

HEAD = 256
"""Bytes at the start of a file by which it is known again."""

LAST_LINE_SECONDS = 10.0
"""A last line without line end counts as whole when nothing was added for that long."""


@dataclass(slots=True)
class Block:
    """What one read brought: whole lines, without their line ends.

    ``start`` is the offset of the first line, ``size`` the bytes read. ``restarted``: the file was
    emptied or replaced before these lines. ``written`` is its time of change (seconds since the
    epoch). ``more``: there is more to read at once.
    """

    lines: list[bytes] = field(default_factory=list)
    start: int = 0
    size: int = 0
    restarted: bool = False
    too_long: int = 0
    written: float = 0.0
    more: bool = False


class Follower:
    """Reads what was appended to a file since the last call.

    ``offset`` is where the next line starts, ``unread`` how many bytes stood behind it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.unread = 0
        self.head = b""
        self._inode: int | None = None
        self._seen: tuple[int, ...] = ()
        self._skipping = False

    def read(self, now: float) -> Block | None:
        """The next lines, or ``None`` when nothing was appended. ``now`` in seconds since the epoch.

        Raises:
            OSError: the file is gone or cannot be read.
        """
        status = self.path.stat()
        if _version(status) == self._seen:
            return self._last_line(status, now)
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())  # another file may have taken its place since
            head = os.pread(file.fileno(), HEAD, 0)
            restarted = self._inode is not None and not self._continues(status, head)
            start = 0 if restarted else self.offset
            data = os.pread(file.fileno(), BLOCK, start)
        self._inode, self.head, self.offset = status.st_ino, head, start
        self._skipping = self._skipping and not restarted
        block = self._block(data)
        block.start, block.restarted, block.written = start, restarted, status.st_mtime
        block.more = block.size == BLOCK
        self._seen = () if block.more else _version(status)
        self.unread = max(0, status.st_size - self.offset)
        return block if data or restarted else None

    def _last_line(self, status: os.stat_result, now: float) -> Block | None:
        """A line that its writer may not end any more; should it, the line is read again as a whole."""
        if not self.unread or self._skipping or now - status.st_mtime < LAST_LINE_SECONDS:
            return None
        with self.path.open("rb") as file:
            line = os.pread(file.fileno(), BLOCK, self.offset)
        self.unread = 0
        return Block([line.replace(b"\0", b"")], self.offset, len(line), written=status.st_mtime)

    def rewind(self) -> None:
        """Read the file from its start again."""
        self.offset, self._seen, self._skipping = 0, (), False

    def _continues(self, status: os.stat_result, head: bytes) -> bool:
        """Is it still the file that was read so far? A fast writer may be past our offset again."""
        same = status.st_ino == self._inode and status.st_size >= self.offset
        return same and head.startswith(self.head)

    def _block(self, data: bytes) -> Block:
        line_end = b"\n"
        end = data.rfind(line_end) + 1
        if not end and len(data) == BLOCK:
            line_end = b"\r"  # hours of a progress bar that redraws itself
            end = data.rfind(line_end) + 1
        if not end:
            return self._without_line_end(data)
        self.offset += end
        lines = data[: end - 1].replace(b"\0", b"").split(line_end)
        if self._skipping:
            self._skipping = False
            lines.pop(0)
        return Block(lines, size=len(data))

    def _without_line_end(self, data: bytes) -> Block:
        """A torn line waits for its end; one longer than a block is dropped as it comes."""
        if len(data) < BLOCK:
            return Block(size=len(data))
        self.offset += len(data)
        first, self._skipping = not self._skipping, True
        return Block(too_long=int(first), size=len(data))


def _version(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file does, even if it is emptied and written again to the same size."""
    return status.st_ino, status.st_size, status.st_mtime_ns
