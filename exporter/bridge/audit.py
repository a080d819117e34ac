"""The audit log of actions: append-only JSON lines, all that is remembered of them.

Each step's intent is on the disk before the step, its result after.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.secret_shapes import masked

STOP, KILL, EVIDENCE, NOTIFY = "stop", "kill", "evidence", "notify"
MOST_BYTES = 64 << 20
"""Bytes read from the end of the file: a hundred thousand actions."""
_OPENED = ("run", "alert", "severity", "fingerprint", "attempt", "do", "dry_run")


class AuditError(Exception):
    """Raised when the log cannot be used; says why, and the fix."""


@dataclass
class Action:
    """What is done about one alert of one attempt of a run; times are Unix seconds.

    ``announced`` is when the veto window began, ``acted`` when the stop began, ``doing`` a step that has
    begun and not ended. ``results`` are the words of each step. ``outcome`` is empty while it is open, then
    ``done``, ``failed``, ``vetoed``, ``dropped``, ``refused`` or ``interrupted``; ``reason`` says why.
    """

    id: str
    run: str
    alert: str
    severity: str
    fingerprint: str
    attempt: int
    do: tuple[str, ...]
    dry_run: bool
    opened: float
    announced: float | None = None
    acted: float | None = None
    doing: str = ""
    results: dict[str, str] = field(default_factory=dict)
    failed: bool = False
    closed: float | None = None
    outcome: str = ""
    reason: str = ""

    @property
    def stops(self) -> bool:
        """Whether it stops the run."""
        return STOP in self.do


class Audit:
    """The log in a folder, written by one process; ``actions`` by id. Raises AuditError."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.jsonl"
        self.actions: dict[str, Action] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(self._file).st_size
            content = os.pread(self._file, min(size, MOST_BYTES), max(0, size - MOST_BYTES))
            if content and not content.endswith(b"\n"):
                os.write(self._file, b"\n")  # after half a line of a full disk, or of a killed process
        except BlockingIOError:
            raise AuditError(
                f"{self.path}: another process writes to it. Expected: one bridge per state folder. "
                "Fix: stop the other one."
            ) from None
        except OSError as problem:
            raise AuditError(
                f"{self.path} cannot be used: {problem.strerror}. Expected: a folder that this user may "
                "write to. Fix: name another one with --state-dir."
            ) from None
        for line in content.splitlines():
            # Half a line, or one that someone edited.
            with suppress(ValueError, RecursionError, KeyError, TypeError, AttributeError):
                self._apply(json.loads(line))

    def append(self, time: float, event: str, action: str, **fields: Any) -> Action:
        """Write down an event of an action, on the disk when this returns. Raises OSError."""
        entry = {"time": time, "event": event, "action": action, **fields}
        line = json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        if os.write(self._file, line) < len(line):
            os.write(self._file, b"\n")
            raise OSError(28, "no space left on device")
        os.fsync(self._file)
        self._apply(entry)
        return self.actions[action]

    def open(self) -> list[Action]:
        """The actions that are not closed."""
        return [action for action in list(self.actions.values()) if not action.outcome]

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)
        self._file = -1  # the number may be another file's by then

    def _apply(self, entry: Mapping[str, Any]) -> None:
        """Apply an event that was just written or is read back."""
        event, time, name = entry["event"], entry["time"], entry["action"]
        if event == "opened":
            same = {key: entry[key] for key in _OPENED}
            self.actions[name] = Action(id=name, opened=time, **{**same, "do": tuple(same["do"])})
            return
        action = self.actions[name]
        if event == "announced":
            action.announced = time
        elif event == "intent":
            action.doing = entry["step"]
            action.acted = time if action.doing == STOP else action.acted
        elif event == "result":
            action.doing = ""
            action.results[entry["step"]] = entry["text"]
            action.failed = action.failed or not (entry["done"] or action.dry_run)
        elif event == "closed":
            action.doing, action.closed, action.outcome, action.reason = (
                "",
                time,
                entry["outcome"],
                entry["reason"],
            )


def safe(text: str) -> str:
    """Return a text as the log and messages may hold it: short, on one line, without secrets."""
    return " ".join(masked(text).split())[:500]
