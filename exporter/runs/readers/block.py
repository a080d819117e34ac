"""The files of a log, and what one poll of them brought."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = 2 * 1024 * 1024
"""Bytes read at a time, and the longest line that is read at all. Twice that weighs 6 MB more, for good."""

HEAD = 256
"""Bytes at the start of a file by which it is recognised again."""

Parts = Callable[[], Sequence[Path]]
"""Returns the files that make up one log now, oldest first; at least one."""


@dataclass(slots=True)
class Pieces:
    """Whole lines of some bytes; ``used`` bytes are done with, the rest waits for more.

    ``too_long`` and ``broken`` count lines that were left out.
    """

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
    """The status of a file that may be opened.

    Raises:
        OSError: it is gone, or a pipe by now: opening one waits for its writer.
    """
    status = os.stat(path)  # noqa: PTH116  (twice a second for each log: a Path's own takes a third longer)
    if stat.S_ISFIFO(status.st_mode):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))
    return status


def version(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file does, even if it is emptied and written again to the same size."""
    return status.st_ino, status.st_size, status.st_mtime_ns
