"""Readers: of files that grow and continue each other, of a document, of a compressed log.

Files are polled, not watched with inotify: run folders lie on NFS, in bind mounts and in containers,
where change events do not arrive. Nothing of a growing file stays in memory between two polls.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = 2 * 1024 * 1024
"""Bytes read at a time, and the longest line that is read at all. Twice that weighs 6 MB more, for good."""
HEAD = 256  # bytes at the start of a file by which it is recognised again
LAST_LINE_SECONDS = 10.0  # A last line without line end counts as whole when nothing was added for that long
LONGEST_DOCUMENT = 64 * 1024 * 1024
"""Bytes; a longer document is left alone, since it must be in memory as a whole."""
Parts = Callable[[], Sequence[Path]]  # Returns the files that make up one log now, oldest first; at least one


@dataclass(slots=True)
class Block:
    """Whole lines without their line ends, or the records of a binary format, and where they come from.

    ``start`` is the offset of the first line, ``size`` the bytes read, of which ``used`` are done with;
    ``skip`` says what of the next ones belongs to something left out. ``too_long`` and ``broken`` count what
    was. ``restarted``: the file was emptied or replaced before these lines. ``written`` is its time of change
    (seconds since the epoch). ``more``: there is more to read at once. ``grown``: some of its bytes were not
    there at the last poll.
    """

    lines: list[bytes] = field(default_factory=list)
    start: int = 0
    size: int = 0
    used: int = 0
    skip: int = 0
    too_long: int = 0
    broken: int = 0
    restarted: bool = False
    written: float = 0.0
    more: bool = False
    grown: bool = True


Cut = Callable[[bytes, Block], Block]
"""Cuts what is whole off the bytes of a block; with ``more``, no line or record may be longer than these."""


def text_lines(data: bytes, block: Block) -> Block:
    """Cut lines of text; NUL bytes, which a file emptied under its writer begins with, are dropped."""
    line_end = b"\n"
    end = data.rfind(line_end) + 1
    if not end and block.more:
        line_end = b"\r"  # hours of a progress bar that redraws itself
        end = data.rfind(line_end) + 1
    if end:
        block.lines, block.used = data[: end - 1].replace(b"\0", b"").split(line_end), end
        if block.skip:
            block.skip = 0
            block.lines.pop(0)
    elif block.more:  # too long: dropped as it comes
        block.used, block.too_long, block.skip = len(data), 1 - block.skip, 1
    return block


def status_of(path: Path) -> os.stat_result:
    """The status of a file that may be opened. Raises OSError."""
    status = os.stat(path)  # noqa: PTH116  (twice a second for each log: a Path's own takes a third longer)
    if stat.S_ISFIFO(status.st_mode):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))
    return status


def version(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file does, even if it is emptied and written again to the same size."""
    return status.st_ino, status.st_size, status.st_mtime_ns


class Reader(ABC):
    """Returns what was written since the last poll; the next is at ``offset``, and ``unread`` bytes follow.

    ``head`` is how the log begins, empty if that says nothing: it holds its whole history then.
    """

    head, offset, unread = b"", 0, 0

    def __init__(self, parts: Parts) -> None:
        self._parts, self._seen = parts, tuple[object, ...]()

    @property
    def path(self) -> Path:
        """The file that is read now."""
        return self._parts()[-1]

    @property
    def size(self) -> float:
        """Bytes that there are."""
        return self.offset + self.unread

    @abstractmethod
    def poll(self, now: float) -> Block | None:
        """What is new, or ``None``; ``now`` in seconds since the epoch. Raises OSError."""

    def rewind(self) -> None:
        """Start again."""
        self._seen = ()


class Growing(Reader):
    """Files as one, mostly a single one, of which only the newest grows (as in TensorBoard)."""

    def __init__(self, parts: Parts, cut: Cut = text_lines) -> None:
        super().__init__(parts)
        self._cut, self._end, self._done = cut, 0, set[Path]()
        self._begin(parts()[0], 0)

    def _begin(self, path: Path, before: int) -> None:
        """Read a file from its start, behind so many bytes of earlier ones."""
        self._path, self._begins, self._inode = path, b"", -1
        self._before = self.offset = before
        self._seen, self._skip, self.unread = (), 0, 0

    @property
    def path(self) -> Path:
        """The file that is read now."""
        return self._path

    @property
    def size(self) -> float:
        """Bytes that there are in all files."""
        later = sum(path.stat().st_size for path in self._later() if path.exists())
        return self.offset + self.unread + later

    def _later(self) -> list[Path]:
        return [path for path in self._parts() if path != self._path and path not in self._done]

    def rewind(self) -> None:
        """Read all files from their start again."""
        if self._done:
            self._done.clear()
            self._begin(self._parts()[0], 0)
        self.offset, self._seen, self._skip = 0, (), 0

    def poll(self, now: float) -> Block | None:
        """The next lines, or ``None`` when nothing was appended. Raises OSError."""
        while True:
            block = None
            try:
                status = status_of(self._path)
                block = self._read() if version(status) != self._seen else self._last_line(status, now)
            except FileNotFoundError:
                if not self._later():
                    raise
            later = self._later()
            if block is not None:
                block.more = block.more or bool(later)
                return block
            if not later:
                return None
            self._done.add(self._path)
            self._begin(later[0], self.offset + self.unread)  # torn data stays torn

    def _read(self) -> Block | None:
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())  # another file may have taken its place since
            begins, start = os.pread(file.fileno(), HEAD, 0), self.offset - self._before
            # a fast writer may have emptied the file and be past the offset again
            same = (
                status.st_ino == self._inode and status.st_size >= start and begins.startswith(self._begins)
            )
            restarted = not same and self._inode >= 0
            start, skip = (0, 0) if restarted else (start, self._skip)
            # a buffer of a whole block costs more than a step's line
            data = os.pread(file.fileno(), min(BLOCK, max(0, status.st_size - start)), start)
        full = len(data) == BLOCK
        block = self._cut(data, Block(start=start, skip=skip, size=len(data), restarted=restarted, more=full))
        self._inode, self._begins, self._skip = status.st_ino, begins, block.skip
        self.head = self.head if self._before else begins
        self.offset = self._before + start + block.used
        self.unread = max(0, status.st_size - start - block.used)
        self._seen = () if full else version(status)
        block.start += self._before
        end = block.start + len(data)
        block.written, block.grown, self._end = status.st_mtime, restarted or end > self._end, end
        return block if data or restarted else None

    def _last_line(self, status: os.stat_result, now: float) -> Block | None:
        """A line that its writer may not end any more; should it, the line is read again as a whole."""
        whole = self._cut is not text_lines or self._skip  # nothing of a torn record is read
        if not self.unread or whole or now - status.st_mtime < LAST_LINE_SECONDS:
            return None
        with self._path.open("rb") as file:
            data = os.pread(file.fileno(), BLOCK, self.offset - self._before)
        if not data:
            return None
        self.unread = 0
        line = data.replace(b"\0", b"")
        return Block([line], self.offset, len(data), written=status.st_mtime, grown=False)


class Document(Reader):
    """The newest version of a document whenever it changed, as one line; ``offset`` never falls."""

    def poll(self, _now: float) -> Block | None:
        """The whole document, or ``None`` if it did not change. Raises OSError."""
        path, before = self.path, self._seen
        status = status_of(path)
        self._seen = (path, *version(status))
        if self._seen == before:
            return None
        block = Block(start=self.offset, written=status.st_mtime)
        if status.st_size > LONGEST_DOCUMENT:
            block.too_long = 1
            return block
        block.lines = [path.read_bytes()]
        block.size = len(block.lines[0])
        self.offset = max(self.offset, block.size)
        return block


class Archive(Reader):
    """A text that gzip compressed, which no one appends to. ``offset`` counts the bytes of the text."""

    size = float("inf")  # not known before the end, and it never grows

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._begins, self._waiting, self._skip = True, b"", 0
        self._file: gzip.GzipFile | None = None

    def poll(self, _now: float) -> Block | None:
        """The next lines, or ``None`` once all were read and the file is the same. Raises OSError."""
        status = status_of(self.path)
        restarted = self._seen not in ((), version(status))
        if self._begins or restarted:
            self._seen, self._begins, self.offset = version(status), False, 0
            self._file, self._waiting, self._skip = gzip.GzipFile(self.path), b"", 0
        if self._file is None:
            return None
        block = Block(start=self.offset, skip=self._skip, restarted=restarted, written=status.st_mtime)
        try:
            data = self._file.read(BLOCK)
        except (EOFError, zlib.error, gzip.BadGzipFile):  # what stands behind the damage cannot be read
            data, block.broken = b"", 1
        if not self.offset and not self._waiting:
            self.head = data[:HEAD]
        text = self._waiting + data
        if data:
            block.size, block.more = len(text), len(text) >= BLOCK
            text_lines(text, block).more = True
            self._skip = block.skip
        else:
            self._file.close()
            self._file, block.used = None, len(text)
            block.lines = [text.replace(b"\0", b"")] if text and not self._skip else []  # without a line end
        self._waiting = text[block.used :]
        self.offset += block.used
        return block

    def rewind(self) -> None:
        """Read the file from its start again."""
        self._begins = True
