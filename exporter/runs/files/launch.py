"""What `stepwatch run` writes beside a log: how its trainer was started and how it ended, exactly.

The file ``NAME.log.launch`` holds one JSON object a line: a start, then its end. While the wrapper lives
it holds a lock on the file, which the kernel releases however the wrapper dies. So no process id is
compared, which another namespace or machine would number differently.

For the same reason a wrapper is asked by a file: ``NAME.log.request`` holds one request as a JSON object. The
wrapper takes it within a second, does what it asks, and answers in its own file. Exporters only read; the
service `actions` asks.

The file ``NAME.log.checkpoints`` lists the trainer's checkpoints. It is replaced as a whole, by a rename. The
exporter reads it, and never the checkpoints: those may lie on a disk that it does not see.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

SUFFIX = ".launch"
REQUEST_SUFFIX = ".request"
CHECKPOINTS_SUFFIX = ".checkpoints"
MOST_CHECKPOINTS = 20  # that are listed: the last ones, and those that are kept
MOST_BYTES = 65536
"""Read of a file. Of the launch file these are the last: a start and its end are far shorter."""
ACTIONS = {"stop": "stopped", "kill": "killed"}
"""What a wrapper may be asked for, and the word for what it then did."""


@dataclass(frozen=True, slots=True)
class Request:
    """Asks to ``stop`` (SIGTERM to the trainer) or ``kill`` (SIGKILL to all), and ``why``."""

    id: str
    action: str
    attempt: int
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a wrapper did about a request, by its id, and when, in Unix seconds; ``reason`` says why not."""

    request: str
    action: str
    by: str
    why: str
    at: float
    done: bool
    reason: str = ""

    @property
    def cause(self) -> str:
        """What became of the trainer, and why: ``stopped by stepwatch: KLExplosion``."""
        return f"{ACTIONS.get(self.action, self.action)} by {self.by}" + (f": {self.why}" if self.why else "")


@dataclass(frozen=True, slots=True)
class Retry:
    """Another attempt after one that failed for a cause; it begins ``at`` so many seconds since the epoch."""

    number: int
    of: int
    cause: str
    at: float

    @property
    def text(self) -> str:
        """As messages name it."""
        return f"retry {self.number} of {self.of} after {self.cause}"

    def fields(self) -> dict[str, object]:
        """As the file has it."""
        return {"retry": self.number, "max_retries": self.of, "cause": self.cause, "at": self.at}


class SavedStep(NamedTuple):
    """A complete checkpoint, by its step and folder: below the trainer's, or beside it where it is kept."""

    name: str
    step: int


@dataclass(frozen=True, slots=True)
class Launch:
    """The last attempt of a wrapped trainer; times in seconds since the epoch."""

    attempt: int  # its number, from 1
    started: float
    ended: float | None = None  # None while it has not, or where no one was left to write it down
    exit_code: int | None = None  # None if a signal ended it
    signal: str = ""  # the name of that signal; empty if it exited
    oom_kills: int = 0  # processes that the kernel killed for lack of memory during the attempt
    orphaned: bool = False  # it was ended because its wrapper had been killed
    held: bool | None = None  # whether the wrapper lives; None where the file system knows no locks
    stopped: Answer | None = None  # the request on which it was stopped or killed, if it was
    log: str = ""  # the path of its log
    failure: str = ""  # what kind of failure ended it: CUDA out of memory; empty if that is not known
    retry: Retry | None = None  # the retry that it is or, where it waits, that follows it
    waits: bool = False  # another attempt will follow
    retries: int = 0  # how many attempts of this log were retries
    checkpoints: tuple[SavedStep, ...] = ()  # the complete ones of the run, the oldest first

    @property
    def state(self) -> str | None:
        """The state of its run; ``None`` where that has to be found by other signs."""
        if self.ended is not None:
            if self.waits and self.held is not False:
                return "running" if self.held else None
            if self.stopped:
                return "stopped"
            return "finished" if self.exit_code == 0 else "failed"
        if self.held is None:
            return None
        return "running" if self.held else "vanished"

    @property
    def cause(self) -> str:
        """Why it ended: ``out of memory``, ``SIGTERM``, ``exit code 1``; empty while it is running."""
        if self.orphaned or (self.ended is None and self.held is False):
            return "wrapper killed"
        if self.ended is None or (self.waits and self.held is not False):
            return ""
        if self.stopped:
            return self.stopped.cause
        if self.failure:
            return self.failure
        if self.signal == "SIGKILL" and self.oom_kills:
            return "out of memory"
        return self.signal or f"exit code {self.exit_code}"


_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("attempt", "oom_kills", "retry", "max_retries"), (int,)),
    **dict.fromkeys(("started", "ended", "at"), (float,)),
    **dict.fromkeys(("signal", "cause", "id", "request", "action", "by", "why", "reason"), (str,)),
    **dict.fromkeys(("orphaned", "done"), (bool,)),
    "exit_code": (int, NoneType),
}
_START = ("attempt", "started")
_END = ("ended", "exit_code", "signal", "oom_kills", "orphaned")
_RETRY = ("retry", "max_retries", "cause", "at")
_REQUEST = ("id", "action", "attempt", "by", "why")
_ANSWER = ("request", "action", "by", "why", "at", "done", "reason")


def beside(log: Path) -> Path:
    """Where the wrapper of this log writes."""
    return log.with_name(log.name + SUFFIX)


def read(log: Path) -> Launch | None:
    """Return the last attempt of a log; ``None`` where no wrapper writes it, or its file is of no use."""
    lines, held = _lines(log)
    known: dict[str, Any] = {}
    for line in lines:
        retry = _fields(line, _RETRY)
        if start := _fields(line, _START):
            retries = line.get("retries")
            known = {"retries": retries} if isinstance(retries, int) else {}
            known |= start | {"retry": Retry(*retry.values()) if retry else None}
        elif end := _fields(line, _END):
            failure = line.get("failure")
            known |= end | {"failure": failure if isinstance(failure, str) else ""}
        elif retry:
            known |= {"retry": Retry(*retry.values()), "waits": True}
        elif (answer := _fields(line, _ANSWER)) and answer["done"]:
            known |= {"stopped": Answer(**answer), "waits": False}
    if "started" not in known:
        return None
    return Launch(**known, held=held, log=str(log), checkpoints=read_checkpoints(log))


def answers(log: Path) -> dict[str, Answer]:
    """Return what the wrappers of a log did about requests of late, by the request's id, the oldest first."""
    lines, _ = _lines(log)
    return {found["request"]: Answer(**found) for line in lines if (found := _fields(line, _ANSWER))}


def ask(log: Path, request: Request) -> None:
    """Leave a request for the wrapper of a log, for a minute, in place of one not taken yet."""
    file, temporary = tempfile.mkstemp(prefix=f".{log.name}.", dir=log.parent)
    try:
        with os.fdopen(file, "w", encoding="utf-8") as written:
            json.dump(asdict(request), written)
            os.fchmod(file, 0o644)  # the wrapper may be another user's
        os.replace(temporary, f"{log}{REQUEST_SUFFIX}")  # noqa: PTH105  (a name that is a string)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def parsed(content: bytes) -> Request | None:
    """Return the request that a file holds; ``None`` if it holds none."""
    with suppress(ValueError, RecursionError):
        fields = _fields(json.loads(content), _REQUEST)
        if fields and fields["action"] in ACTIONS:
            return Request(**fields)
    return None


def _lines(log: Path) -> tuple[Iterator[Any], bool | None]:
    """What a log's wrapper wrote of late, one object a line, and whether it lives."""
    path = f"{log}{SUFFIX}"
    if not os.path.exists(path):  # noqa: PTH110  (asked of each log at each look)
        return iter(()), None
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return iter(()), None
    try:
        # The lock first: then everything that its last holder wrote is visible.
        held = _is_locked(file)
        status = os.fstat(file)
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        return _objects(os.pread(file, min(size, MOST_BYTES), max(0, size - MOST_BYTES))), held
    except OSError:
        return iter(()), None
    finally:
        os.close(file)


def _objects(content: bytes) -> Iterator[Any]:
    for line in content.splitlines():
        with suppress(ValueError, RecursionError):  # half a line of a full disk
            yield json.loads(line)


def _fields(found: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return these fields of an object; none if it lacks one or has one of another type."""
    if isinstance(found, dict) and all(isinstance(found.get(name), _TYPES[name]) for name in names):
        return {name: found.get(name) for name in names}
    return {}


def _is_locked(file: int) -> bool | None:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return True if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return False


def read_checkpoints(log: Path) -> tuple[SavedStep, ...]:
    """Return the checkpoints of a log, the oldest first; none where nothing of use is noted."""
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        file = os.open(f"{log}{CHECKPOINTS_SUFFIX}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = json.loads(os.read(file, MOST_BYTES))["complete"]
        finally:
            os.close(file)
        return tuple(SavedStep(str(name)[:200], int(step)) for name, step in found[:MOST_CHECKPOINTS])
    return ()


def write_checkpoints(log: Path, checkpoints: Sequence[SavedStep]) -> None:
    """Note the checkpoints of a log; raises OSError if its folder cannot be written to."""
    path = Path(f"{log}{CHECKPOINTS_SUFFIX}")
    written = path.with_name(f".{path.name}.new")
    written.write_text(f"{json.dumps({'complete': checkpoints})}\n", encoding="utf-8")
    written.replace(path)
