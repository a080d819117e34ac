"""Verdicts of people on alerts: false alarm or right. JSON lines, only appended."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

NAME = "verdicts.jsonl"
MOST_BYTES = 4 << 20
"""Of the file: some 20,000 verdicts. Anyone who reaches the port may write them."""

WORDS = {"false_alarm": "false alarm", "right": "right", "known": "right, but known"}
"""What may be said, and in words."""


class FullError(Exception):
    """Raised when the file may not grow further."""


class Verdict(NamedTuple):
    """A verdict on an alert; times are in seconds since the epoch.

    Attributes:
        run: The run that it is about.
        alert: Its name.
        since: When it began to fire, in whole seconds; 0 if that is not known.
        verdict: One of ``WORDS``.
        note: Why; may be empty.
        at: When it was given.
    """

    run: str
    alert: str
    since: int
    verdict: str
    note: str
    at: float


class VerdictLog:
    """The file in a folder of ours; without a folder, verdicts last as long as the process."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / NAME if folder else None
        self._kept: list[Verdict] = []
        self._lock = threading.Lock()

    def add(self, verdict: Verdict) -> None:
        """Append one; it is on the disk when this returns.

        Raises:
            FullError: The file is as long as it may be.
            OSError: It cannot be written.
        """
        line = f"{json.dumps(verdict._asdict())}\n".encode()
        with self._lock:
            if self._path is None:
                self._kept.append(verdict)
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(file).st_size
                if size + len(line) > MOST_BYTES:
                    raise FullError
                # A line that a full disk or a crash cut off must not swallow this one.
                cut = size and os.pread(file, 1, size - 1) != b"\n"
                os.write(file, b"\n" * bool(cut) + line)
                os.fsync(file)
            finally:
                os.close(file)

    def latest(self) -> list[Verdict]:
        """Return the last verdict on each alert about a run since some time, the oldest first.

        Raises:
            OSError: The file cannot be read.
        """
        found: dict[tuple[str, str, int], Verdict] = {}
        for verdict in self._all():
            found.pop(verdict[:3], None)
            found[verdict[:3]] = verdict
        return list(found.values())

    def _all(self) -> Iterator[Verdict]:
        if self._path is None:
            yield from list(self._kept)
            return
        with suppress(FileNotFoundError):
            for line in self._path.read_bytes().splitlines():
                with suppress(ValueError, TypeError):
                    yield Verdict(**json.loads(line))
