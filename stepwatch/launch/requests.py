"""Requests to the wrapper: the file beside the log that asks it to stop, pause or continue its trainer."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from exporter.runs.files import launch
from exporter.secret_shapes import masked

POLL_SECONDS = 0.5
OLD_SECONDS = 60.0
"""Older requests are refused as outdated."""
MOST_BYTES = 8192
_MOST_REFUSALS = 20
"""Requests answered per attempt, so that writers to the folder cannot fill the disk."""
_MOST_WORDS = 200
"""Characters that are kept of who asks, and why."""


class _File(NamedTuple):
    """What a request's file held, and who owns the folder that it lay in."""

    content: bytes
    status: os.stat_result
    folder_owner: int


class Requests:
    """The requests to one wrapper."""

    def __init__(self, log: Path) -> None:
        self._folder, self._name = log.parent, log.name + launch.REQUEST_SUFFIX
        self._refusals = 0

    def take(self, attempt: int) -> tuple[launch.Request, str] | None:
        """Remove the request that lies there, if one does.

        Args:
            attempt: The one that runs.

        Returns:
            The request, and why it must not be done; empty if it may. ``None`` where there is none, or it is
            not worth an answer.
        """
        file = self._taken()
        request = file and launch.parsed(file.content)
        if not file or not request:
            return None
        reason = _refused(file, request, attempt)
        self._refusals += bool(reason)
        if reason and self._refusals > _MOST_REFUSALS:
            return None
        id_, by, why = (_short(text) for text in (request.id, request.by, request.why))
        return replace(request, id=id_, by=by, why=why), reason

    def _taken(self) -> _File | None:
        """Read the request and remove it: moved away first, so that the next one is not removed unread."""
        taken = f"{self._name}.taken"
        with suppress(OSError), _opened(self._folder, os.O_DIRECTORY) as folder:
            # A network file system was just asked what the folder holds now, since it was opened.
            if stat.S_ISREG(os.stat(self._name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.rename(self._name, taken, src_dir_fd=folder, dst_dir_fd=folder)
                try:
                    with _opened(taken, os.O_NOFOLLOW | os.O_NONBLOCK, folder) as file:
                        return _File(os.read(file, MOST_BYTES), os.fstat(file), os.fstat(folder).st_uid)
                finally:
                    os.unlink(taken, dir_fd=folder)
        return None


def _refused(file: _File, request: launch.Request, attempt: int) -> str:
    """Why a request is refused; empty if it is not."""
    status = file.status
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        return "the request's file is a link"
    trusted = {0, os.geteuid(), file.folder_owner}
    if status.st_uid not in trusted:
        return f"the request's file belongs to user {status.st_uid}, not to root, this user or the folder's"
    age = time.time() - status.st_mtime
    if abs(age) > OLD_SECONDS:
        return f"the request is {age:.0f} s old, by this machine's clock; at most {OLD_SECONDS:.0f} s"
    if request.attempt != attempt:
        return f"attempt {request.attempt} is meant, and attempt {attempt} runs"
    return ""


def _short(text: str) -> str:
    return " ".join(masked(text).split())[:_MOST_WORDS]


@contextmanager
def _opened(path: Path | str, flags: int, folder: int | None = None) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)
