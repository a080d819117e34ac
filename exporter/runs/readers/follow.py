"""Follow one growing file, line by line, whatever its writer does to it.

Files are polled, not watched with inotify: run folders lie on NFS, in bind mounts and in containers,
where change events do not arrive. Nothing of the file is kept in memory between two polls.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from exporter.runs.readers.block import BLOCK, HEAD, Block
from exporter.runs.readers.framing import Framing, TextLines

LAST_LINE_SECONDS = 10.0
"""A last line without line end counts as whole when nothing was added for that long."""


class Follower:
    """Reads what was appended to a file since the last call.

    ``offset`` is where the next line starts, ``unread`` how many bytes stood behind it.
    """

    def __init__(self, path: Path, framing: Framing | None = None) -> None:
        self.path = path
        self.offset = 0
        self.unread = 0
        self.head = b""
        self._framing = framing or TextLines()
        self._inode: int | None = None
        self._end = 0
        self._seen: tuple[int, ...] = ()

    @property
    def size(self) -> float:
        """Bytes that there are."""
        return self.offset + self.unread

    def read(self, now: float) -> Block | None:
        """The next lines, or ``None`` when nothing was appended. ``now`` in seconds since the epoch.

        Raises:
            OSError: the file is gone or cannot be read.
        """
        status = status_of(self.path)
        if version(status) == self._seen:
            return self._last_line(status, now)
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())  # another file may have taken its place since
            head = os.pread(file.fileno(), HEAD, 0)
            restarted = self._inode is not None and not self._continues(status, head)
            start = 0 if restarted else self.offset
            # A buffer of a whole block costs more than a step's line.
            data = os.pread(file.fileno(), min(BLOCK, max(0, status.st_size - start)), start)
        self._inode, self.head, self.offset = status.st_ino, head, start
        if restarted:
            self._framing.reset()
        block = self._block(data)
        block.start, block.restarted, block.written = start, restarted, status.st_mtime
        block.grown, self._end = restarted or block.end > self._end, block.end
        self._seen = () if block.more else version(status)
        self.unread = max(0, status.st_size - self.offset)
        return block if data or restarted else None

    def _last_line(self, status: os.stat_result, now: float) -> Block | None:
        """A line that its writer may not end any more; should it, the line is read again as a whole."""
        if not self.unread or now - status.st_mtime < LAST_LINE_SECONDS:
            return None
        with self.path.open("rb") as file:
            data = os.pread(file.fileno(), BLOCK, self.offset)
        lines = self._framing.rest(data)
        if not lines:
            return None
        self.unread = 0
        return Block(lines, self.offset, len(data), written=status.st_mtime, grown=False)

    def rewind(self) -> None:
        """Read the file from its start again."""
        self.offset, self._seen = 0, ()
        self._framing.reset()

    def _continues(self, status: os.stat_result, head: bytes) -> bool:
        """Is it still the file that was read so far? A fast writer may be past our offset again."""
        same = status.st_ino == self._inode and status.st_size >= self.offset
        return same and head.startswith(self.head)

    def _block(self, data: bytes) -> Block:
        full = len(data) == BLOCK
        pieces = self._framing.split(data, full=full)
        self.offset += pieces.used
        return Block(pieces.lines, size=len(data), too_long=pieces.too_long, broken=pieces.broken, more=full)


def status_of(path: Path) -> os.stat_result:
    """The status of a file that may be opened.

    Raises:
        OSError: it is gone, or a pipe by now: to open one is to wait for its writer.
    """
    status = os.stat(path)  # noqa: PTH116  (twice a second for each log: a Path's own takes a third longer)
    if stat.S_ISFIFO(status.st_mode):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))
    return status


def version(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file does, even if it is emptied and written again to the same size."""
    return status.st_ino, status.st_size, status.st_mtime_ns
