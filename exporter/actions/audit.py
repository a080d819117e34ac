"""The audit log: append-only JSON lines; each step's intent is synced before the step, its result after."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from exporter.actions.policy import STOP, Action, Attempt, Result
from exporter.secret_shapes import masked

MOST_BYTES = 64 << 20
"""Bytes read from the end of the file: a hundred thousand actions."""
_SAME = ("run", "alert", "severity", "fingerprint", "since", "kill_after", "dry_run")
"""Fields of an action that stand in the log as they are."""


class AuditError(Exception):
    """Raised when the log cannot be used; says why, and the fix."""


class Audit:
    """The log in a folder, written by one process at a time; ``actions`` has the recorded actions by id."""

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
                f"{self.path}: another process writes to it. Expected: one circuit breaker per state folder. "
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

    def append(self, time: float, event: str, action: str = "", **fields: Any) -> None:
        """Write down an event about an action, by its id, on the disk when this returns. Raises OSError."""
        entry = {"time": time, "event": event, **({"action": action} if action else {}), **fields}
        line = json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        if os.write(self._file, line) < len(line):
            os.write(self._file, b"\n")
            raise OSError(28, "no space left on device")
        os.fsync(self._file)
        self._apply(entry)

    def open(self) -> list[Action]:
        """Return the actions that are not closed."""
        return [action for action in self.actions.values() if not action.outcome]

    def close(self) -> None:
        """Close the file. Of a step in progress it records only the intent."""
        os.close(self._file)
        self._file = -1  # the number may be another file's by then

    def _apply(self, entry: dict[str, Any]) -> None:
        """Apply an event that was just written or is read back."""
        event, time, name = entry["event"], entry["time"], entry.get("action", "")
        if event == "opened":
            same = {key: entry[key] for key in _SAME}
            attempt, do = Attempt(**entry["attempt"]), tuple(entry["do"])
            self.actions[name] = Action(id=name, attempt=attempt, do=do, opened=time, **same)
        elif action := self.actions.get(name):
            if event == "announced":
                action.announced, action.deadline = time, entry["deadline"]
            elif event == "vetoed":
                action.vetoed = True
            elif event == "intent":
                action.step = entry["step"]
                action.acted = time if action.step == STOP else action.acted
            elif event == "result":
                action.step, action.stepped = "", time
                dry = entry.get("dry") is True
                action.results[entry["step"]] = Result(entry["done"], entry["text"], dry)
            elif event == "closed":
                action.closed, action.outcome, action.reason = time, entry["outcome"], entry["reason"]


def opening(action: Action) -> dict[str, Any]:
    """Return the fields of the event that opens an action."""
    same = {name: getattr(action, name) for name in _SAME}
    return {**same, "attempt": action.attempt._asdict(), "do": list(action.do)}


def safe(text: str) -> str:
    """Return a text as the log and messages may hold it: short, on one line, without secrets."""
    return " ".join(masked(text).split())[:500]
