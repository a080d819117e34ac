"""What `stepwatch run` writes beside a log: how its trainer was started and how it ended, exactly.

The file ``NAME.log.launch`` holds one JSON object a line: a start, then its end. While the wrapper lives
it holds a lock on the file, which the kernel releases however the wrapper dies. So no process id is
compared, which another namespace or machine would number differently.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

SUFFIX = ".launch"
MOST_BYTES = 65536
"""Of the end of the file: the last start and its end are far shorter."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The last attempt of a wrapped trainer.

    Attributes:
        attempt: Its number, from 1.
        started: When it began, in seconds since the epoch.
        ended: When it ended; ``None`` while it has not, or where no one was left to write it down.
        exit_code: What it exited with; ``None`` if a signal ended it.
        signal: The name of that signal; empty if it exited.
        oom_kills: Processes that the kernel killed for lack of memory during the attempt.
        orphaned: Whether it was ended because its wrapper had been killed.
        held: Whether the wrapper lives; ``None`` where the file system knows no locks.
    """

    attempt: int
    started: float
    ended: float | None = None
    exit_code: int | None = None
    signal: str = ""
    oom_kills: int = 0
    orphaned: bool = False
    held: bool | None = None

    @property
    def state(self) -> str | None:
        """The state of its run; ``None`` where that has to be found by other signs."""
        if self.ended is not None:
            return "finished" if self.exit_code == 0 else "failed"
        if self.held is None:
            return None
        return "running" if self.held else "vanished"

    @property
    def cause(self) -> str:
        """Why it ended: ``out of memory``, ``SIGTERM``, ``exit code 1``; empty while it goes on."""
        if self.orphaned or (self.ended is None and self.held is False):
            return "wrapper killed"
        if self.ended is None:
            return ""
        if self.signal == "SIGKILL" and self.oom_kills:
            return "out of memory"
        return self.signal or f"exit code {self.exit_code}"


_START = {"attempt": (int,), "started": (float,)}
_END = {
    "ended": (float,),
    "exit_code": (int, NoneType),
    "signal": (str,),
    "oom_kills": (int,),
    "orphaned": (bool,),
}


def beside(log: Path) -> Path:
    """Where the wrapper of this log writes."""
    return log.with_name(log.name + SUFFIX)


def read(log: Path) -> Launch | None:
    """Return the last attempt of a log; ``None`` where no wrapper writes it, or its file is of no use."""
    path = f"{log}{SUFFIX}"
    if not os.path.exists(path):  # noqa: PTH110  (asked of each log at each look)
        return None
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # The lock first: what its last holder wrote is then there.
        held = _is_locked(file)
        status = os.fstat(file)
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        lines = os.pread(file, min(size, MOST_BYTES), max(0, size - MOST_BYTES)).splitlines()
    except OSError:
        return None
    finally:
        os.close(file)
    known: dict[str, Any] = {}
    for line in lines:
        with suppress(ValueError):  # half a line of a full disk
            found = json.loads(line)
            if _is_of(found, _START):
                known = found
            elif _is_of(found, _END):
                known |= found
    if not _is_of(known, _START):
        return None
    return Launch(**{name: known[name] for name in (*_START, *_END) if name in known}, held=held)


def _is_of(found: Any, fields: Mapping[str, tuple[type, ...]]) -> bool:
    return isinstance(found, dict) and all(
        isinstance(found.get(name), types) for name, types in fields.items()
    )


def _is_locked(file: int) -> bool | None:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return True if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return False
