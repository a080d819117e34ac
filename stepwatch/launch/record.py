"""The files beside a wrapped trainer's log: the record of its attempts, and requests to the wrapper."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from exporter.runs.files import launch
from exporter.secret_shapes import masked
from stepwatch.launch.failures import Outcome
from stepwatch.launch.retries import End
from stepwatch.schema.errors import Refused

POLL_SECONDS = 0.5
OLD_SECONDS = 60.0
"""Older requests are refused as outdated."""
MOST_BYTES = 8192
_MOST_REFUSALS = 20
"""Requests answered per attempt, so that writers to the folder cannot fill the disk."""
_MOST_WORDS = 200
"""Characters that are kept of who asks, and why."""


class LaunchRecord:
    """The open file of one run. The lock is held until the last process that has it open ends."""

    def __init__(self, log: Path) -> None:
        """Open it. Raises Refused if another wrapper writes this log, or the file cannot be written."""
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


class Requests:
    """The requests to one wrapper."""

    def __init__(self, log: Path) -> None:
        self._folder, self._name = log.parent, log.name + launch.REQUEST_SUFFIX
        self._refusals = 0

    def take(self, attempt: int) -> tuple[launch.Request, str] | None:
        """Remove a request to the running attempt; returns it, and why it must not be done (or empty)."""
        taken = f"{self._name}.taken"
        with suppress(OSError), _opened(self._folder, os.O_DIRECTORY) as folder:
            # A network file system was just asked what the folder holds now, since it was opened.
            if not stat.S_ISREG(os.stat(self._name, dir_fd=folder, follow_symlinks=False).st_mode):
                return None
            # Moved away first, so that the next one is not removed unread.
            os.rename(self._name, taken, src_dir_fd=folder, dst_dir_fd=folder)
            try:
                with _opened(taken, os.O_NOFOLLOW | os.O_NONBLOCK, folder) as file:
                    request, status = launch.parsed(os.read(file, MOST_BYTES)), os.fstat(file)
                    owner = os.fstat(folder).st_uid
            finally:
                os.unlink(taken, dir_fd=folder)
            if request is None:
                return None
            reason = _refused(status, owner, request, attempt)
            self._refusals += bool(reason)
            if reason and self._refusals > _MOST_REFUSALS:
                return None
            id_, by, why = (
                " ".join(masked(text).split())[:_MOST_WORDS] for text in (request.id, request.by, request.why)
            )
            return replace(request, id=id_, by=by, why=why), reason
        return None


def _refused(status: os.stat_result, owner: int, request: launch.Request, attempt: int) -> str:
    """Why a request is refused; empty if it is not. ``owner`` is the folder's."""
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        return "the request's file is a link"
    if status.st_uid not in {0, os.geteuid(), owner}:
        return f"the request's file belongs to user {status.st_uid}, not to root, this user or the folder's"
    age = time.time() - status.st_mtime
    if abs(age) > OLD_SECONDS:
        return f"the request is {age:.0f} s old, by this machine's clock; at most {OLD_SECONDS:.0f} s"
    if request.attempt != attempt:
        return f"attempt {request.attempt} is meant, and attempt {attempt} runs"
    return ""


@contextmanager
def _opened(path: Path | str, flags: int, folder: int | None = None) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)
