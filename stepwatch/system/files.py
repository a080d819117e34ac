"""Locks of files, and the ends of log files."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable
from pathlib import Path

_TAIL_BYTES = 16_384

# Network folders may know no locks; single files are still replaced as a whole there.
_NO_LOCKS = {errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS}


def lock(descriptor: int, *, wait: bool = True) -> bool:
    """Lock an open file until it is closed (false if it is taken and no ``wait``). Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log, none when there is no such file."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()[-count:]
    except FileNotFoundError:
        return []


def from_now_on(log: Path) -> Callable[[], str]:
    """Return a function that reads what was logged since now; the file may be replaced meanwhile."""
    begin = log.stat().st_size if log.exists() else 0

    def read() -> str:
        if not log.exists():
            return ""
        with log.open("rb") as file:
            file.seek(begin if log.stat().st_size >= begin else 0)
            return file.read().decode("utf-8", "replace")

    return read
