"""Steps of actions, and what they reach a run by: its wrapper, a process group of config.yaml, or a Ray job.

Never the process that has the log open, which may be `tee`. Evidence is collected by a separate process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from exporter.actions.audit import safe
from exporter.actions.policy import CHECKPOINT, Action, Attempt, Result
from exporter.runs.files import launch
from exporter.watchdog.client import Client, UnreachableError

ANSWER_SECONDS = 15.0
"""Timeout for a wrapper's answer; it checks twice a second."""
NO_TARGET = "unwrapped"
_SIGNALS = {"stop": signal.SIGTERM, "kill": signal.SIGKILL, "pause": signal.SIGSTOP}


class TargetError(Exception):
    """Raised when a step was not done; the text says why."""


class Saving(NamedTuple):
    """How to request a checkpoint: the signal's name, and the timeout in seconds."""

    signal: str
    within: float


class Target(Protocol):
    """The target of a run."""

    @property
    def attempt(self) -> Attempt:
        """The current or last attempt."""

    @property
    def gone(self) -> str:
        """Why it is not reachable; empty if it runs."""

    def send(self, step: str, action: Action) -> str:
        """Do a step: ``stop``, ``kill`` or ``pause``. Returns what was done, in words.

        Raises:
            TargetError: It was not done.
        """

    def save(self, saving: Saving | None, action: Action) -> str:
        """Request a checkpoint, and wait until it is complete. Returns its description.

        Raises:
            TargetError: No checkpoint was completed.
        """


class Unsaved:
    """A target whose checkpoints are unknown."""

    def save(self, saving: Saving | None, action: Action) -> str:  # noqa: ARG002  (part of every target)
        raise TargetError("only a run that `stepwatch run` started can be asked for a checkpoint")


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
        self._ask(step, action)
        return f"{launch.ACTIONS[step]} by its wrapper"

    def save(self, saving: Saving | None, action: Action) -> str:
        if saving is None:
            raise TargetError("no signal is configured. Fix: set actions.checkpoint_signal")
        answer = self._ask("checkpoint", action, saving)
        return f"{answer.reason} is complete, after {saving.signal}"

    def _ask(self, step: str, action: Action, saving: Saving | None = None) -> launch.Answer:
        """Send a request to the wrapper. Returns its answer.

        Raises:
            TargetError: The wrapper did not do it.
        """
        why = f"{action.alert} ({action.id})"
        request = launch.Request(
            f"{action.id}-{step}", step, self.known.attempt, "stepwatch", why, saving.signal if saving else ""
        )
        try:
            launch.ask(self.log, request)
        except OSError as problem:
            raise TargetError(f"{self.log.parent} cannot be written to: {problem.strerror}") from None
        file = self.log.with_name(self.log.name + launch.REQUEST_SUFFIX)
        begun = time.monotonic()
        while (answer := launch.answers(self.log).get(request.id)) is None:
            if why_not := self._unanswered(file, time.monotonic() - begun, saving):
                with suppress(OSError):  # so that no later reader finds it
                    file.unlink()
                raise TargetError(why_not)
            time.sleep(0.1)
        if not answer.done:
            raise TargetError(f"the wrapper refused: {answer.reason}")
        return answer

    def _unanswered(self, request: Path, waited: float, saving: Saving | None) -> str:
        """Why a request cannot be answered any more; empty if it can."""
        if saving is None or request.exists():
            late = f"the wrapper did not answer within {ANSWER_SECONDS:.0f} s"
            return late if waited > ANSWER_SECONDS else ""
        if waited > saving.within:
            return f"no new checkpoint was complete within {saving.within:.0f} s of {saving.signal}"
        now = launch.read(self.log)
        gone = now is None or now.attempt != self.known.attempt or Wrapped(self.log, now).gone
        return "the trainer ended before a checkpoint was complete" if gone else ""


@dataclass(frozen=True)
class Group(Unsaved):
    """A process group whose leader's id a file holds.

    The file must be younger than the process: otherwise the id may have been reused.
    """

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
        return Attempt(f"process group {self.file}", self.pid, self.started)

    def send(self, step: str, action: Action) -> str:  # noqa: ARG002  (part of every target)
        if Group.read(self.file) != self:
            raise TargetError(f"{self.file} now names another process")
        try:
            os.killpg(self.pid, _SIGNALS[step])
        except OSError as problem:
            raise TargetError(f"process group {self.pid}: {problem.strerror}") from None
        return f"{_SIGNALS[step].name} to process group {self.pid}"


@dataclass(frozen=True)
class RayJob(Unsaved):
    """A job of Ray, by its submission id, at the REST API of the dashboard."""

    url: str
    job: str
    started: float
    gone: str = ""

    @classmethod
    def ask(cls, url: str, job: str) -> RayJob:
        """Return the state of the job."""
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
    """A target from config.yaml, for the runs that a pattern matches."""

    runs: re.Pattern[str]
    find: Callable[[], Target]


def find(run: str, log: Path | None, configured: Sequence[Configured]) -> Target | None:
    """Return the target of a run, or ``None``.

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


EVIDENCE_SECONDS = 90.0
"""Timeout for an archive; it usually takes less than 30 s."""


class Steps:
    """Does steps.

    Args:
        target: Finds the target of a run, by its name.
        evidence: The command that collects evidence, without the run's name.
        saving: How to request a checkpoint of trainers; ``None`` if not configured.
    """

    def __init__(
        self, target: Callable[[str], Target | None], evidence: Sequence[str], saving: Saving | None = None
    ) -> None:
        self._target, self._evidence, self._saving = target, tuple(evidence), saving

    def perform(self, step: str, action: Action) -> Result:
        """Do a step of an action. In a dry run, only report it."""
        if action.dry_run:
            return Result(done=False, text="dry run: not done", dry=True)
        if step == "evidence":
            return self._collect(action)
        target = self._target(action.run)
        if target is None or target.attempt != action.attempt or target.gone:
            return Result(done=False, text="the attempt that the alert is about has ended")
        try:
            done = target.save(self._saving, action) if step == CHECKPOINT else target.send(step, action)
            return Result(done=True, text=safe(done))
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
        lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or [""]
        if done.returncode:
            return Result(done=False, text=safe(lines[-1] or f"exit code {done.returncode}"))
        return Result(done=True, text=safe(lines[-1]))


def evidence_command(
    settings: Path | None, config: Path | None, out: Path, paths: Sequence[str]
) -> list[str]:
    """Return the command that collects evidence and prints the archive's path last; the run follows it.

    Args:
        settings: Its file of settings, if there is one.
        config: The file config.yaml, if it is known.
        out: The folder of archives.
        paths: The folders of runs.
    """
    named = [f"--config.file={settings}"] if settings and settings.exists() else []
    named += [f"--config-yaml={config}"] if config else []
    return [sys.executable, "-m", "exporter.evidence", *named, f"--out={out}", "--path", *paths, "--"]
