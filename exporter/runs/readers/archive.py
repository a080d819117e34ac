"""Read a compressed log, once: no one appends to it."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

from exporter.runs.readers.block import BLOCK, HEAD, Block
from exporter.runs.readers.follow import status_of, version
from exporter.runs.readers.framing import TextLines


class Archive:
    """A text that gzip compressed. ``offset`` counts the bytes of the text."""

    unread = 0
    size = float("inf")
    """Not known before the end, and it never grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.head = b""
        self._seen: tuple[int, ...] = ()
        self._rewound = False
        self._file: gzip.GzipFile | None = None
        self._waiting = b""
        self._framing = TextLines()

    def read(self, _now: float) -> Block | None:
        """The next lines, or ``None`` once all were read and the file is the same.

        Raises:
            OSError: the file is gone or cannot be read.
        """
        status = status_of(self.path)
        restarted = bool(self._seen) and version(status) != self._seen
        if not self._seen or restarted or self._rewound:
            self._open(status)
        if self._file is None:
            return None
        block = self._next(self._file)
        block.restarted, block.written = restarted, status.st_mtime
        return block

    def rewind(self) -> None:
        """Read the file from its start again."""
        self._rewound = True

    def _open(self, status: os.stat_result) -> None:
        self._seen, self._rewound, self.offset, self._waiting = version(status), False, 0, b""
        self._framing.reset()
        self._file = gzip.GzipFile(self.path)

    def _next(self, file: gzip.GzipFile) -> Block:
        data, broken = _read(file)
        if not self.offset and not self._waiting:
            self.head = data[:HEAD]
        if not data:
            return self._end(broken)
        data, start = self._waiting + data, self.offset
        pieces = self._framing.split(data, full=len(data) >= BLOCK)
        self._waiting = data[pieces.used :]
        self.offset += pieces.used
        return Block(pieces.lines, start, len(data), too_long=pieces.too_long, more=True)

    def _end(self, broken: int) -> Block:
        """The last line, which may have no line end."""
        last, start = self._waiting, self.offset
        self._close()
        self._waiting, self.offset = b"", start + len(last)
        return Block(self._framing.rest(last), start, broken=broken)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


def _read(file: gzip.GzipFile) -> tuple[bytes, int]:
    """The next bytes of the text; what stands behind a fault cannot be read, which is counted."""
    try:
        return file.read(BLOCK), 0
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b"", 1
