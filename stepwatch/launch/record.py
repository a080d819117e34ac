"""The files beside a wrapped trainer's log: the record of its attempts, and requests to the wrapper."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from exporter.runs.files import launch
from exporter.runs.files.launch import Answer, Retry
from exporter.secret_shapes import masked
from stepwatch.schema.failures import Failure

LOOK_SECONDS, OLD_SECONDS = 0.5, 60.0
"""Between two looks for a request; older ones are refused as outdated."""
MOST_BYTES = 8192
MOST_WORDS = 200
"""Characters that are kept of who asks, and why."""


@dataclass(frozen=True)
class End:
    """How an attempt ended: its wait status, and the processes that the kernel killed for lack of memory.

    ``interrupted`` is the signal to the wrapper, or ``Ctrl-C``; ``step`` the last one of the attempt.
    """

    status: int
    oom_kills: int = 0
    failure: Failure | None = None
    stopped: Answer | None = None
    interrupted: str = ""
    step: int | None = None

    @property
    def exit_code(self) -> int | None:
        """What it exited with; ``None`` if a signal ended it."""
        return os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None

    @property
    def signal(self) -> str:
        """The name of the signal that ended it; empty if it exited."""
        return signal.Signals(os.WTERMSIG(self.status)).name if os.WIFSIGNALED(self.status) else ""

    @property
    def cause(self) -> str:
        """Why it ended, as users see it."""
        if self.stopped:
            return self.stopped.cause
        return self.failure.text if self.failure else self.signal or f"exit code {self.exit_code}"

    @property
    def alert(self) -> str:
        """The alert on which it was stopped, without the id of the action; empty if there is none."""
        return self.stopped.why.partition(" ")[0] if self.stopped else ""


class Record:
    """The open record of one log. Its lock is held until the last process that has it open ends."""

    def __init__(self, log: Path) -> None:
        """Open it. Raises OSError, BlockingIOError if another wrapper writes this log."""
        self.log, self.path = log, launch.beside(log)
        last = launch.read(log)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.attempt, self._retries = (last.attempt, last.retries) if last else (0, 0)
        self._broken, self._looked = False, 0.0

    def start(self, command: Sequence[str], retry: Retry | None) -> None:
        """Note that the next attempt begins, as a retry or not. Secrets in the command line are masked."""
        self.attempt += 1
        self._retries += retry is not None
        words = [masked(word) for word in command]
        start = {"attempt": self.attempt, "started": time.time(), "retries": self._retries, "command": words}
        self._write(start | (retry.fields() if retry else {}))

    def end(
        self, end: End, retry: Retry | None = None, changes: Sequence[str] = (), *, orphaned: bool = False
    ) -> None:
        """Note how the attempt ended and which one follows, at once: no one sees a failure between."""
        how = {"exit_code": end.exit_code, "signal": end.signal, "oom_kills": end.oom_kills}
        failure = end.failure.text if end.failure else ""
        lines = [{"ended": time.time(), **how, "failure": failure, "orphaned": orphaned}]
        self._write(*lines, *([retry.fields() | {"changes": list(changes)}] if retry else []))

    def killed(self) -> int:
        """Note that the process of the attempts was killed; returns its status."""
        if self.runs():
            self.end(End(signal.SIGKILL), orphaned=True)
        return signal.SIGKILL

    def runs(self) -> bool:
        """Whether an attempt has begun whose end is not noted."""
        last = launch.read(self.log)
        return last is not None and last.ended is None

    def _write(self, *lines: Mapping[str, object]) -> None:
        """Write lines at once. A full disk loses them, but never stops the trainer."""
        text = ("\n" * self._broken + "".join(f"{json.dumps(line)}\n" for line in lines)).encode()
        written = 0
        with suppress(OSError):
            written = os.write(self._file, text)
        self._broken = 0 < written < len(text) or (self._broken and not written)

    def take_request(self) -> Answer | None:
        """Remove a request, if a look is due, and record the answer; returns it if it is to be done now."""
        if time.monotonic() < self._looked + LOOK_SECONDS:
            return None
        self._looked = time.monotonic()
        path = f"{self.log}{launch.REQUEST_SUFFIX}"
        with suppress(OSError):
            os.close(os.open(self.path.parent, os.O_RDONLY))  # so that a network file system looks anew
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                request, status = launch.parsed(os.read(file, MOST_BYTES)), os.fstat(file)
            finally:
                os.close(file)
                os.unlink(path)  # noqa: PTH108
            if request is None:
                return None
            reason = self._refused(status, request.attempt)
            id_, by, why = (
                " ".join(masked(text).split())[:MOST_WORDS] for text in (request.id, request.by, request.why)
            )
            answer = Answer(id_, request.action, by, why, at=time.time(), done=not reason, reason=reason)
            self._write(asdict(answer))
            return answer if answer.done else None
        return None

    def _refused(self, status: os.stat_result, attempt: int) -> str:
        """Why a request is refused; empty if it is not."""
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            return "the request's file is a link"
        if status.st_uid not in {0, os.geteuid(), self.path.parent.stat().st_uid}:
            owners = "root, this user or the folder's"
            return f"the request's file belongs to user {status.st_uid}, not to {owners}"
        age = time.time() - status.st_mtime
        if abs(age) > OLD_SECONDS:
            return f"the request is {age:.0f} s old, by this machine's clock; at most {OLD_SECONDS:.0f} s"
        if attempt != self.attempt:
            return f"attempt {attempt} is meant, and attempt {self.attempt} runs"
        return ""


def oom_kills() -> int:
    """Return how many processes of our cgroup the kernel killed for lack of memory; 0 in the root cgroup."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, below = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            name, root = ("memory.oom_control", "/memory") if controllers else ("memory.events", "")
            # In a container the path is often the host's, and the files lie at the root.
            for folder in (f"/sys/fs/cgroup{root}{below.rstrip('/')}", f"/sys/fs/cgroup{root}"):
                with suppress(OSError):
                    content = Path(folder, name).read_text("utf-8")
                    if found := re.search(r"^oom_kill (\d+)$", content, re.MULTILINE):
                        return int(found[1])
    return 0
