"""The file beside a wrapped trainer's log, as the run exporter reads it, and the lock on it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from exporter.runs.files import launch
from exporter.secret_shapes import masked
from stepwatch.launch.outcome import Outcome
from stepwatch.schema.errors import Refused


class LaunchRecord:
    """The open file of one run. The lock is held until the last process that has it open is gone."""

    def __init__(self, log: Path) -> None:
        """Open it.

        Raises:
            Refused: Another wrapper writes this log, or the file cannot be written.
        """
        self.path = launch.beside(log)
        last = launch.read(log)
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"{log} is written by another `stepwatch run`. Fix: wait for its end, or name this run "
                "otherwise with --name."
            ) from None
        except OSError as error:
            raise Refused(
                f"{self.path} cannot be written: {error.strerror}. Fix: name a folder that you may write "
                "to with --runs."
            ) from None
        self.attempt = last.attempt if last else 0

    def start(self, command: Sequence[str]) -> None:
        """Note that the next attempt begins. Secrets in the command line are masked."""
        self.attempt += 1
        words = [masked(word) for word in command]
        self._write({"attempt": self.attempt, "started": time.time(), "command": words})

    def end(self, outcome: Outcome, *, orphaned: bool = False) -> None:
        """Note how the attempt ended, and whether that was because the wrapper had been killed."""
        self._write({"ended": time.time(), **outcome.fields(), "orphaned": orphaned})

    def answer(self, answer: launch.Answer) -> None:
        """Note what was done about a request."""
        self._write(asdict(answer))

    def _write(self, line: dict[str, object]) -> None:
        os.write(self._file, f"{json.dumps(line)}\n".encode())
