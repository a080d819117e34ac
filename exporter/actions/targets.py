"""Steps of actions, by a run's wrapper or a process group, never by who has the log open (maybe `tee`)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from exporter.actions.audit import safe
from exporter.actions.policy import EVIDENCE, Action, Attempt, Result
from exporter.runs.files import launch

ANSWER_SECONDS = 15.0
"""Timeout for a wrapper's answer; it checks twice a second."""
EVIDENCE_SECONDS = 90.0
"""Timeout for an archive; it usually takes less than 30 s."""
_SIGNALS = {"stop": signal.SIGTERM, "kill": signal.SIGKILL}


class TargetError(Exception):
    """Raised when a step was not done; the text says why."""


@dataclass(frozen=True)
class Wrapped:
    """A run that `stepwatch run` started, by its log; ``gone`` says why it is not reachable."""

    log: Path
    known: launch.Launch

    @property
    def attempt(self) -> Attempt:
        """The current or last attempt."""
        return Attempt(f"log {self.log}", self.known.attempt, self.known.started)

    @property
    def gone(self) -> str:
        """Why it is not reachable; empty if it runs."""
        return "" if self.known.ended is None and self.known.held else "ended"

    def send(self, step: str, action: Action) -> str:
        """Have the wrapper ``stop`` or ``kill`` the trainer. Returns what was done, in words."""
        why = f"{action.alert} ({action.id})"
        request = launch.Request(f"{action.id}-{step}", step, self.known.attempt, "stepwatch", why)
        try:
            launch.ask(self.log, request)
        except OSError as problem:
            raise TargetError(f"{self.log.parent} cannot be written to: {problem.strerror}") from None
        until = time.monotonic() + ANSWER_SECONDS
        while (answer := launch.answers(self.log).get(request.id)) is None:
            if time.monotonic() > until:
                with suppress(OSError):  # so that no later reader finds it
                    self.log.with_name(self.log.name + launch.REQUEST_SUFFIX).unlink()
                raise TargetError(f"the wrapper did not answer within {ANSWER_SECONDS:.0f} s")
            time.sleep(0.1)
        if not answer.done:
            raise TargetError(f"the wrapper refused: {answer.reason}")
        return f"{launch.ACTIONS[step]} by its wrapper"


@dataclass(frozen=True)
class Group:
    """A process group whose leader's id is in a file younger than it; ``gone``: why it is not reachable."""

    file: Path
    pid: int
    started: float
    gone: str = ""

    @classmethod
    def read(cls, file: Path) -> Group:
        """Return the process that the file names."""
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
        """The process that the file names."""
        return Attempt(f"process group {self.file}", self.pid, self.started)

    def send(self, step: str, _: Action) -> str:
        """Signal the group. Returns what was done, in words; raises TargetError if it was not done."""
        if Group.read(self.file) != self:
            raise TargetError(f"{self.file} now names another process")
        try:
            os.killpg(self.pid, _SIGNALS[step])
        except OSError as problem:
            raise TargetError(f"process group {self.pid}: {problem.strerror}") from None
        return f"{_SIGNALS[step].name} to process group {self.pid}"


Target = Wrapped | Group


class Configured(NamedTuple):
    """The file of a process group, for the runs that a pattern matches."""

    runs: re.Pattern[str]
    pid_file: Path


def find(run: str, log: Path | None, configured: Sequence[Configured]) -> Target | None:
    """Return the target of a run, if there is one, by its log, if `stepwatch run` writes that."""
    for each in configured:
        if each.runs.fullmatch(run):
            return Group.read(each.pid_file)
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


class Steps:
    """Does steps: ``target`` finds a run's, ``evidence`` is the command that collects an archive of one."""

    def __init__(self, target: Callable[[str], Target | None], evidence: Sequence[str]) -> None:
        self._target, self._evidence = target, tuple(evidence)

    def perform(self, step: str, action: Action) -> Result:
        """Do a step of an action. In a dry run, only report it."""
        if action.dry_run:
            return Result(done=False, text="dry run: not done", dry=True)
        if step == EVIDENCE:
            return self._collect(action)
        target = self._target(action.run)
        if target is None or target.attempt != action.attempt or target.gone:
            return Result(done=False, text="the attempt that the alert is about has ended")
        try:
            return Result(done=True, text=safe(target.send(step, action)))
        except TargetError as problem:
            return Result(done=False, text=safe(str(problem)))

    def _collect(self, action: Action) -> Result:
        """Make the archive in a separate process, since reads may hang."""
        command = [*self._evidence, action.run]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=EVIDENCE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Result(done=False, text=f"not collected within {EVIDENCE_SECONDS:.0f} s")
        except OSError as problem:
            return Result(done=False, text=f"{command[0]}: {problem.strerror}")
        lines = (done.stderr if done.returncode else done.stdout).strip().splitlines() or [""]
        if done.returncode:
            return Result(done=False, text=safe(lines[-1] or f"exit code {done.returncode}"))
        return Result(done=True, text=safe(lines[-1]))
