"""The audit log: append-only JSON lines, and the actions that it records.

Each step is written twice: its intent, synced before the step begins, and its result. So after a kill, a step
that may have been done is known and not repeated.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from exporter.actions.policy import DISRUPTIVE, Action, Attempt, Result
from exporter.secret_shapes import masked

NAME = "audit.jsonl"
MOST_BYTES = 64 << 20
"""Bytes read from the end of the file: a hundred thousand actions."""


class AuditError(Exception):
    """Raised when the log cannot be used; says why, and the fix."""


class Audit:
    """The log in a folder, written by one process at a time; ``actions`` has the recorded actions by id.

    Raises:
        AuditError: Another process has it, or it cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
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
        for entry in _entries(content):
            with suppress(KeyError, TypeError):  # a line that someone edited
                self._apply(entry)

    def append(self, time: float, event: str, action: str = "", **fields: Any) -> None:
        """Write down an event, on the disk when this returns.

        Args:
            time: When it happened, in Unix seconds.
            event: What happened.
            action: The id of the action that it is about.
            fields: Further fields.

        Raises:
            OSError: It cannot be written: no step may follow.
        """
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
        event, time = entry["event"], entry["time"]
        if event == "opened":
            action = _opened(entry)
            self.actions[action.id] = action
            return
        action_ = self.actions.get(entry.get("action", ""))
        if action_ is None:
            return
        if event == "announced":
            action_.announced, action_.deadline = time, entry["deadline"]
        elif event == "vetoed":
            action_.vetoed = True
        elif event == "intent":
            action_.step = entry["step"]
            if entry["step"] in DISRUPTIVE:
                action_.acted = time
        elif event == "result":
            action_.step, action_.stepped = "", time
            action_.results[entry["step"]] = Result(entry["done"], entry["text"], entry.get("dry") is True)
        elif event == "closed":
            action_.closed, action_.outcome, action_.reason = time, entry["outcome"], entry["reason"]


_SAME = ("run", "alert", "severity", "fingerprint", "since", "kill_after", "dry_run")
"""Fields of an action that stand in the log as they are."""


def opening(action: Action) -> dict[str, Any]:
    """Return the fields of the event that opens an action."""
    same = {name: getattr(action, name) for name in _SAME}
    return {**same, "attempt": action.attempt._asdict(), "do": list(action.do)}


def _opened(entry: dict[str, Any]) -> Action:
    return Action(
        id=entry["action"],
        attempt=Attempt(**entry["attempt"]),
        do=tuple(entry["do"]),
        opened=entry["time"],
        **{name: entry[name] for name in _SAME},
    )


def _entries(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict) and {"time", "event"} <= entry.keys():
                yield entry


def safe(text: str) -> str:
    """Return a text as the log and messages may hold it: short, on one line, without secrets."""
    return " ".join(masked(text).split())[:500]
