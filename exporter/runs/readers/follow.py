"""Follow files: one that grows, several that continue each other, a document, a compressed log.

Files are polled, not watched with inotify: run folders lie on NFS, in bind mounts and in containers,
where change events do not arrive. Nothing of a growing file stays in memory between two polls.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

BLOCK = 2 * 1024 * 1024
"""Bytes read at a time, and the longest line that is read at all. Twice that weighs 6 MB more, for good."""
HEAD = 256  # bytes at the start of a file by which it is recognised again
Parts = Callable[[], Sequence[Path]]  # Returns the files that make up one log now, oldest first; at least one


@dataclass(slots=True)
class Pieces:
    """Whole lines; ``used`` bytes are done with. ``too_long`` and ``broken`` count lines left out."""

    lines: list[bytes] = field(default_factory=list)
    used: int = 0
    too_long: int = 0
    broken: int = 0


@dataclass(slots=True)
class Block:
    """Whole lines without their line ends, or the records of a binary format.

    ``start`` is the offset of the first line, ``size`` the bytes read. ``restarted``: the file was
    emptied or replaced before these lines. ``written`` is its time of change (seconds since the
    epoch). ``more``: there is more to read at once. ``too_long`` and ``broken`` count what had to be
    left out. ``grown``: some of its bytes were not there at the last poll.
    """

    lines: list[bytes] = field(default_factory=list)
    start: int = 0
    size: int = 0
    restarted: bool = False
    too_long: int = 0
    broken: int = 0
    written: float = 0.0
    more: bool = False
    grown: bool = True

    @property
    def end(self) -> int:
        """Where the bytes end that were read."""
        return self.start + self.size


def status_of(path: Path) -> os.stat_result:
    """The status of a file that may be opened. Raises OSError."""
    status = os.stat(path)  # noqa: PTH116  (twice a second for each log: a Path's own takes a third longer)
    if stat.S_ISFIFO(status.st_mode):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))
    return status


def version(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file does, even if it is emptied and written again to the same size."""
    return status.st_ino, status.st_size, status.st_mtime_ns


LAST_LINE_SECONDS = 10.0  # A last line without line end counts as whole when nothing was added for that long
LONGEST_DOCUMENT = 64 * 1024 * 1024
"""Bytes; a longer document is left alone, since it must be in memory as a whole."""


class Framing(Protocol):
    """Cuts the bytes of a file into lines, in order, from its start on."""

    def split(self, data: bytes, *, full: bool) -> Pieces:
        """Cut off what is whole. ``full``: a line that does not fit into ``data`` is too long."""

    def unfinished(self, data: bytes) -> list[bytes]:
        """What may be read of a last line that its writer has left unfinished."""

    def reset(self) -> None:
        """The next bytes are the start of a file."""


class TextLines:
    """Text; NUL bytes, which a file emptied under its writer begins with, are dropped."""

    def __init__(self) -> None:
        self._skipping = False

    def split(self, data: bytes, *, full: bool) -> Pieces:
        line_end = b"\n"
        end = data.rfind(line_end) + 1
        if not end and full:
            line_end = b"\r"  # hours of a progress bar that redraws itself
            end = data.rfind(line_end) + 1
        if not end:
            if not full:
                return Pieces()
            first, self._skipping = not self._skipping, True  # too long: dropped as it comes
            return Pieces(used=len(data), too_long=int(first))
        lines = data[: end - 1].replace(b"\0", b"").split(line_end)
        if self._skipping:
            self._skipping = False
            lines.pop(0)
        return Pieces(lines, end)

    def unfinished(self, data: bytes) -> list[bytes]:
        return [] if self._skipping or not data else [data.replace(b"\0", b"")]

    def reset(self) -> None:
        self._skipping = False


class Follower:
    """Reads what was appended since; the next line is at ``offset``, ``unread`` bytes follow."""

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

    def poll(self, now: float) -> Block | None:
        """The next lines or ``None``; ``now`` in seconds since the epoch. Raises OSError."""
        status = status_of(self.path)
        if version(status) == self._seen:
            return self._last_line(status, now)
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())  # another file may have taken its place since
            head = os.pread(file.fileno(), HEAD, 0)
            # a fast writer may have emptied the file and be past the offset again
            same = status.st_ino == self._inode and status.st_size >= self.offset
            restarted = self._inode is not None and not (same and head.startswith(self.head))
            start = 0 if restarted else self.offset
            # a buffer of a whole block costs more than a step's line
            data = os.pread(file.fileno(), min(BLOCK, max(0, status.st_size - start)), start)
        if restarted:
            self._framing.reset()
        full = len(data) == BLOCK
        pieces = self._framing.split(data, full=full)
        self._inode, self.head, self.offset = status.st_ino, head, start + pieces.used
        self.unread = max(0, status.st_size - self.offset)
        self._seen = () if full else version(status)
        end = start + len(data)
        grown, self._end = restarted or end > self._end, end
        if not data and not restarted:
            return None
        found, counts = (pieces.lines, start, len(data), restarted), (pieces.too_long, pieces.broken)
        return Block(*found, *counts, written=status.st_mtime, more=full, grown=grown)

    def _last_line(self, status: os.stat_result, now: float) -> Block | None:
        """A line that its writer may not end any more; should it, the line is read again as a whole."""
        if not self.unread or now - status.st_mtime < LAST_LINE_SECONDS:
            return None
        with self.path.open("rb") as file:
            data = os.pread(file.fileno(), BLOCK, self.offset)
        lines = self._framing.unfinished(data)
        if not lines:
            return None
        self.unread = 0
        return Block(lines, self.offset, len(data), written=status.st_mtime, grown=False)

    def rewind(self) -> None:
        """Read the file from its start again."""
        self.offset, self._seen = 0, ()
        self._framing.reset()


class Chain:
    """Files of a folder as one, oldest first, of which only the newest grows (as in TensorBoard)."""

    def __init__(self, parts: Parts, follow: Callable[[Path], Follower]) -> None:
        self._parts = parts
        self._follow = follow
        self.rewind()

    def rewind(self) -> None:
        """Read all files from their start again."""
        self.head = b""
        self._done: set[Path] = set()
        self._before = 0
        self._now = self._follow(self._parts()[0])

    @property
    def path(self) -> Path:
        """The file that is read now."""
        return self._now.path

    @property
    def size(self) -> float:
        """Bytes that there are in all files."""
        return sum(path.stat().st_size for path in self._parts() if path.exists())

    @property
    def offset(self) -> int:
        """Where the next line starts."""
        return self._before + self._now.offset

    @property
    def unread(self) -> int:
        """Bytes of the file that is read now which were not read yet."""
        return self._now.unread

    def poll(self, now: float) -> Block | None:
        """The next lines, or ``None`` when nothing was appended. Raises OSError."""
        while True:
            block = None
            try:
                block = self._now.poll(now)
                self.head = self.head or self._now.head
            except FileNotFoundError:
                if self._later() is None:
                    raise
            later = self._later()
            if block is not None:
                block.start += self._before
                block.more = block.more or later is not None
                return block
            if later is None:
                return None
            self._done.add(self._now.path)
            self._before += self._now.offset + self._now.unread  # torn data stays torn
            self._now = self._follow(later)

    def _later(self) -> Path | None:
        """The next file, if there is one."""
        current = self._now.path
        return next((path for path in self._parts() if path != current and path not in self._done), None)


class Document:
    """The newest version of a document whenever it changed; ``offset`` never falls."""

    head = b""  # A document begins otherwise each time; it holds its whole history
    unread = 0

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.offset = 0
        self._seen: tuple[object, ...] = ()

    @property
    def path(self) -> Path:
        """The newest version."""
        return self._parts()[-1]

    @property
    def size(self) -> float:
        """Bytes that there are."""
        return self.offset

    def poll(self, _now: float) -> Block | None:
        """The whole document as one line, or ``None`` if it did not change. Raises OSError."""
        status = status_of(self.path)
        seen = (self.path, *version(status))
        if seen == self._seen:
            return None
        self._seen = seen
        if status.st_size > LONGEST_DOCUMENT:
            return Block(start=self.offset, too_long=1, written=status.st_mtime)
        data = self.path.read_bytes()
        start, self.offset = self.offset, max(self.offset, len(data))
        return Block([data], start, len(data), written=status.st_mtime)

    def rewind(self) -> None:
        """Read it again."""
        self._seen = ()


class Archive:
    """A text that gzip compressed, which no one appends to. ``offset`` counts the bytes of the text."""

    unread = 0
    size = float("inf")  # not known before the end, and it never grows

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.head = b""
        self._seen: tuple[int, ...] = ()
        self._rewound = False
        self._file: gzip.GzipFile | None = None
        self._waiting = b""
        self._framing = TextLines()

    def poll(self, _now: float) -> Block | None:
        """The next lines, or ``None`` once all were read and the file is the same. Raises OSError."""
        status = status_of(self.path)
        restarted = bool(self._seen) and version(status) != self._seen
        if not self._seen or restarted or self._rewound:
            self._seen, self._rewound, self.offset, self._waiting = version(status), False, 0, b""
            self._framing.reset()
            self._file = gzip.GzipFile(self.path)
        if self._file is None:
            return None
        block = Block(start=self.offset, restarted=restarted, written=status.st_mtime)
        try:
            data = self._file.read(BLOCK)
        except (EOFError, zlib.error, gzip.BadGzipFile):  # what stands behind the damage cannot be read
            data, block.broken = b"", 1
        if not self.offset and not self._waiting:
            self.head = data[:HEAD]
        if data:
            data = self._waiting + data
            pieces = self._framing.split(data, full=len(data) >= BLOCK)
            block.lines, block.too_long, used = pieces.lines, pieces.too_long, pieces.used
            block.size, block.more = len(data), True
        else:
            self._file.close()
            self._file = None
            data, used = self._waiting, len(self._waiting)
            block.lines = self._framing.unfinished(data)  # the last line may have no line end
        self._waiting = data[used:]
        self.offset += used
        return block

    def rewind(self) -> None:
        """Read the file from its start again."""
        self._rewound = True
