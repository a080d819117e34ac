"""Performs steps: collects evidence itself, and sends other steps to the run's target."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from exporter.actions.audit import safe
from exporter.actions.policy import CHECKPOINT, Action, Result
from exporter.actions.stack_client import StackClient
from exporter.actions.targets import Saving, TargetError

EVIDENCE_SECONDS = 90.0
"""Timeout for an archive; it usually takes less than 30 s."""


class Steps:
    """Does steps.

    Args:
        stack: Finds the targets of runs.
        evidence: The command that collects evidence, without the run's name.
        saving: How to request a checkpoint of trainers; ``None`` if not configured.
    """

    def __init__(self, stack: StackClient, evidence: Sequence[str], saving: Saving | None = None) -> None:
        self._stack, self._evidence, self._saving = stack, tuple(evidence), saving

    def perform(self, step: str, action: Action) -> Result:
        """Do a step of an action. In a dry run, only report it."""
        if action.dry_run:
            return Result(done=False, text="dry run: not done", dry=True)
        if step == "evidence":
            return self._collect(action)
        target = self._stack.target(action.run)
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
