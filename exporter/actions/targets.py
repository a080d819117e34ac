"""What a run is reached by: its wrapper, a process group that config.yaml names, or a job of Ray.

Never by the process that holds its log open, which may be `tee`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from exporter.actions.policy import Action, Attempt
from exporter.runs.files import launch
from exporter.watchdog.client import Client, UnreachableError

ANSWER_SECONDS = 15.0
"""In which a wrapper answers; it looks twice a second."""
NO_TARGET = "unwrapped"
_SIGNALS = {"stop": signal.SIGTERM, "kill": signal.SIGKILL, "pause": signal.SIGSTOP}


class TargetError(Exception):
    """Raised when a step was not done; says why."""


class Target(Protocol):
    """What a run is reached by."""

    @property
    def attempt(self) -> Attempt:
        """What runs there, or ran last."""

    @property
    def gone(self) -> str:
        """Why nothing can be done to it; empty if it runs."""

    def send(self, step: str, action: Action) -> str:
        """Do a step: ``stop``, ``kill`` or ``pause``. Returns what was done, in words.

        Raises:
            TargetError: It was not done.
        """


@dataclass(frozen=True)
class Wrapped:
    """A run that `stepwatch run` started, by its log."""

    log: Path
    known: launch.Launch

    @property
    def attempt(self) -> Attempt:
        return Attempt(f"log {self.log}", self.known.attempt, self.known.started)

    @property
    def gone(self) -> str:
        return "" if self.known.ended is None and self.known.held else "ended"

    def send(self, step: str, action: Action) -> str:
        request = launch.Request(
            f"{action.id}-{step}", step, self.known.attempt, "stepwatch", f"{action.alert} ({action.id})"
        )
        try:
            launch.ask(self.log, request)
        except OSError as problem:
            raise TargetError(f"{self.log.parent} cannot be written to: {problem.strerror}") from None
        until = time.monotonic() + ANSWER_SECONDS
        while (answer := launch.answers(self.log).get(request.id)) is None:
            if time.monotonic() > until:
                with suppress(OSError):  # no one is to find it later
                    self.log.with_name(self.log.name + launch.REQUEST_SUFFIX).unlink()
                raise TargetError(f"the wrapper did not answer within {ANSWER_SECONDS:.0f} s")
            time.sleep(0.1)
        if not answer.done:
            raise TargetError(f"the wrapper refused: {answer.reason}")
        return f"{launch.ACTIONS[step]} by its wrapper"


@dataclass(frozen=True)
class Group:
    """A process group whose leader's id a file holds.

    The file must be younger than the process: else another process has got the id since.
    """

    file: Path
    pid: int
    started: float
    gone: str = ""

    @classmethod
    def read(cls, file: Path) -> Group:
        """Return what the file names now."""
        try:
            written, text = file.stat().st_mtime, file.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return cls(file, 0, 0.0, "no_pid_file")
        pid = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
        started = _started(pid) if pid > 1 else None
        if started is None:
            return cls(file, pid, 0.0, "ended")
        if started > written + 1:
            return cls(file, pid, started, "pid_reused")
        with suppress(ProcessLookupError):
            if os.getpgid(pid) == pid and pid != os.getpgid(0):
                return cls(file, pid, started)
        return cls(file, pid, started, "no_group")

    @property
    def attempt(self) -> Attempt:
        return Attempt(f"process group {self.file}", self.pid, self.started)

    def send(self, step: str, action: Action) -> str:  # noqa: ARG002  (part of every target)
        if Group.read(self.file) != self:
            raise TargetError(f"{self.file} names another process by now")
        try:
            os.killpg(self.pid, _SIGNALS[step])
        except OSError as problem:
            raise TargetError(f"process group {self.pid}: {problem.strerror}") from None
        return f"{_SIGNALS[step].name} to process group {self.pid}"


@dataclass(frozen=True)
class RayJob:
    """A job of Ray, by its submission id, at the REST API of the dashboard."""

    url: str
    job: str
    started: float
    gone: str = ""

    @classmethod
    def ask(cls, url: str, job: str) -> RayJob:
        """Return how the job is now."""
        try:
            reply = Client(url).get(f"/api/jobs/{job}")
            known = json.loads(reply.body) if reply.status == 200 else {}
            running = known["status"] in ("RUNNING", "PENDING")
            return cls(url, job, (known.get("start_time") or 0) / 1000, "" if running else "ended")
        except (UnreachableError, ValueError, LookupError, TypeError):
            return cls(url, job, 0.0, "no_ray_job")

    @property
    def attempt(self) -> Attempt:
        return Attempt(f"ray job {self.job}", int(self.started), self.started)

    def send(self, step: str, action: Action) -> str:  # noqa: ARG002  (part of every target)
        if step != "stop":
            raise TargetError(f"Ray cannot {step} a job")
        try:
            reply = Client(self.url).post(f"/api/jobs/{self.job}/stop", "application/json", "")
        except UnreachableError as problem:
            raise TargetError(f"Ray at {self.url} does not answer: {problem}") from None
        if reply.status != 200:
            raise TargetError(f"Ray refused: {reply.status} {reply.body.strip()[:200]}")
        return f"`ray job stop {self.job}`"


@dataclass(frozen=True)
class Configured:
    """A target that config.yaml names for the runs that a pattern fits."""

    runs: re.Pattern[str]
    find: Callable[[], Target]


def find(run: str, log: Path | None, configured: Sequence[Configured]) -> Target | None:
    """Return what a run is reached by; ``None`` if by nothing.

    Args:
        run: Its name.
        log: Its log, if `stepwatch run` writes it.
        configured: What config.yaml names.
    """
    for each in configured:
        if each.runs.fullmatch(run):
            return each.find()
    known = launch.read(log) if log else None
    return Wrapped(log, known) if log and known else None


def _started(pid: int) -> float | None:
    """When a process started, in Unix seconds; ``None`` if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        boot = float(re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.M)[1])  # type: ignore[index]
    except (OSError, TypeError):
        return None
    return None if stat[0] in (b"Z", b"X") else boot + int(stat[19]) / os.sysconf("SC_CLK_TCK")
