"""Follow files that continue each other: each attempt of a run writes an event file of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from exporter.runs.readers.block import Block
from exporter.runs.readers.follow import Follower
from exporter.runs.readers.parts import Parts


class Chain:
    """The files of a folder, oldest first, as if they were one.

    Only the newest grows, as TensorBoard believes as well. ``offset`` counts the bytes of all.
    """

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

    def read(self, now: float) -> Block | None:
        """The next lines, or ``None`` when nothing was appended.

        Raises:
            OSError: the file is gone or cannot be read.
        """
        while (block := self._read(now)) is None and (later := self._later()):
            self._move_on(later)
        if block is not None:
            block.start += self._before
            block.more = block.more or self._later() is not None
        return block

    def _read(self, now: float) -> Block | None:
        try:
            block = self._now.read(now)
        except FileNotFoundError:
            if self._later() is None:
                raise
            return None
        self.head = self.head or self._now.head
        return block

    def _later(self) -> Path | None:
        """The next file, if there is one."""
        return next(
            (path for path in self._parts() if path not in self._done and path != self._now.path), None
        )

    def _move_on(self, path: Path) -> None:
        self._done.add(self._now.path)
        self._before += self._now.offset + self._now.unread  # what is torn stays so
        self._now = self._follow(path)
