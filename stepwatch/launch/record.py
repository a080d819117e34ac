"""The file beside a wrapped trainer's log, as the run exporter reads it, and the lock on it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from exporter.runs.files import launch
from exporter.secret_shapes import masked
from stepwatch.launch.outcome import Outcome
from stepwatch.launch.retries import End
from stepwatch.schema.errors import Refused


class LaunchRecord:
    """The open file of one run. The lock is held until the last process that has it open ends."""

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
                f"{log} is written by another `stepwatch run`. Fix: wait for its end, or choose another "
                "--name."
            ) from None
        except OSError as error:
            raise Refused(
                f"{self.path} cannot be written: {error.strerror}. Fix: name a folder that you may write "
                "to with --runs."
            ) from None
        self.attempt = last.attempt if last else 0
        self._retries = last.retries if last else 0
        self._broken = False

    def start(self, command: Sequence[str], retry: launch.Retry | None = None) -> None:
        """Note that the next attempt begins, as a retry or not. Secrets in the command line are masked."""
        self.attempt += 1
        self._retries += retry is not None
        words = [masked(word) for word in command]
        start = {"attempt": self.attempt, "started": time.time(), "retries": self._retries, "command": words}
        self._write(start | (retry.fields() if retry else {}))

    def end(self, end: End, retry: launch.Retry | None = None, changes: Sequence[str] = ()) -> None:
        """Note how the attempt ended and which one follows, at once: no one sees a failure between."""
        failure = end.failure.text if end.failure else ""
        lines = [{"ended": time.time(), **end.outcome.fields(), "failure": failure, "orphaned": False}]
        if retry:
            lines.append(retry.fields() | {"changes": list(changes)})
        self._write(*lines)

    def orphaned(self, outcome: Outcome) -> None:
        """Record the end of an attempt whose wrapper was killed."""
        self._write({"ended": time.time(), **outcome.fields(), "failure": "", "orphaned": True})

    def answer(self, answer: launch.Answer) -> None:
        """Record the answer to a request."""
        self._write(asdict(answer))

    def _write(self, *lines: Mapping[str, object]) -> None:
        """Write lines at once. A full disk loses the record, but never stops the trainer."""
        text = ("\n" * self._broken + "".join(f"{json.dumps(line)}\n" for line in lines)).encode()
        written = 0
        with suppress(OSError):
            written = os.write(self._file, text)
        self._broken = 0 < written < len(text) or (self._broken and not written)
