"""Read a file that is written anew as a whole each time, such as a trainer's state in JSON."""

from __future__ import annotations

from pathlib import Path

from exporter.runs.readers.block import Block
from exporter.runs.readers.follow import status_of, version
from exporter.runs.readers.parts import Parts

LONGEST = 64 * 1024 * 1024
"""Bytes of a document; a longer one is left alone, since it must be in memory as a whole."""


class Document:
    """The newest of several versions of a document, whenever it changed.

    The versions lie in files of their own where each checkpoint has one. ``offset`` never falls, so
    that what comes later is distinguished from what was there.
    """

    head = b""
    """A document begins otherwise each time; it holds its whole history."""

    unread = 0

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.offset = 0
        self._seen: tuple[object, ...] = ()

    @property
    def path(self) -> Path:
        """The newest version."""
        return self._parts()[-1]

    def read(self, _now: float) -> Block | None:
        """The whole document as one line, or ``None`` if it did not change.

        Raises:
            OSError: the file is gone or cannot be read.
        """
        status = status_of(self.path)
        seen = (self.path, *version(status))
        if seen == self._seen:
            return None
        self._seen = seen
        if status.st_size > LONGEST:
            return Block(start=self.offset, too_long=1, written=status.st_mtime)
        data = self.path.read_bytes()
        start, self.offset = self.offset, max(self.offset, len(data))
        return Block([data], start, len(data), written=status.st_mtime)

    @property
    def size(self) -> float:
        """Bytes that there are."""
        return self.offset

    def rewind(self) -> None:
        """Read it again."""
        self._seen = ()
