"""A small file that another program writes again and again, read whole.

It may be written in place, so that half of it is there for a moment, or replaced. What it said when it
was last in good order holds until it says something better.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path, PurePath

from exporter.runs.discovery.address import Allowlist

MOST_LINKS = 40
"""On one way; then they lead in a circle."""


class Root:
    """``folder`` is where the other file system is seen, such as ``/host``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def real(self, path: Path) -> Path:
        """A path with its links followed as they are meant; as it is if it does not lie below the folder.

        Ray's links are absolute, so that from here they would lead to nowhere.
        """
        if not path.is_relative_to(self._folder):
            return path
        ahead = _parts(path.relative_to(self._folder))
        behind: list[str] = []
        for _ in range(MOST_LINKS):
            linked = self._passed(ahead, behind)
            if linked is None:
                break
            ahead += _parts(PurePath(linked))
            behind = [] if linked.startswith("/") else behind
        return self._folder.joinpath(*behind, *reversed(ahead))

    def _passed(self, ahead: list[str], behind: list[str]) -> str | None:
        """Go on up to the next link; returns where it leads, ``None`` at the end of the way."""
        while ahead:
            part = ahead.pop()
            try:
                return os.readlink(self._folder.joinpath(*behind, part))  # noqa: PTH115  (text as it stands)
            except OSError:
                behind[:] = behind[:-1] if part == ".." else [*behind, part]
        return None


def _parts(path: PurePath) -> list[str]:
    """The last one first."""
    return [part for part in reversed(path.parts) if part != "/"]


MOST_BYTES = 1 << 20

_NOTHING_THERE = (FileNotFoundError, NotADirectoryError)
_Version = tuple[int, int, int]


class DamagedError(Exception):
    """Raised for a content that is not what it should be; its text says in what."""


Parse = Callable[[bytes], list[str]]
"""Gives the addresses that a content lists; raises ``DamagedError``."""


class Document:
    """The servers that one file lists.

    ``there``: it was there when it was last looked at. ``written`` is its own time of change and ``read``
    when it was last found in good order, in seconds since the epoch. A content counts once it is
    ``settle`` seconds old, which is for files that are written in place.
    """

    def __init__(
        self, path: Path, source: str, parse: Parse, gate: Allowlist, root: Root, *, settle: float = 0.0
    ) -> None:
        self.path = path
        self._root = root
        self.addresses: tuple[str, ...] = ()
        self.there = False
        self.written = 0.0
        self.read: float | None = None
        self._source, self._parse, self._gate, self._settle = source, parse, gate, settle
        self._judged: _Version | None = None
        self._good = False

    def look(self) -> None:
        """Read it again if it changed."""
        path = self._root.real(self.path)
        try:
            status = path.stat()
        except _NOTHING_THERE:
            self._is_gone()
        except OSError as error:
            self._refuse((-1, -1, -1), "unreadable", _denied(error))
        else:
            self.there, self.written = True, status.st_mtime
            self._judge(path, status)

    def _is_gone(self) -> None:
        if self.there:
            self._note("gone", "is gone, or a link that leads nowhere")
        self.there, self._good, self._judged = False, False, None

    def _judge(self, path: Path, status: os.stat_result) -> None:
        version = _version(status)
        if version == self._judged:
            self.read = time.time() if self._good else self.read
        elif not stat.S_ISREG(status.st_mode):
            self._refuse(version, "unreadable", "is not a file")
        elif status.st_size > MOST_BYTES:
            self._refuse(version, "too_large", f"has more than {MOST_BYTES} bytes")
        elif not 0 <= time.time() - status.st_mtime < self._settle:
            self._take(path, version)

    def _take(self, path: Path, version: _Version) -> None:
        try:
            addresses = self._parse(_content(path, version))
        except OSError as error:
            self._refuse(version, "unreadable", _denied(error))
        except DamagedError as problem:
            self._refuse(version, "damaged", f"{problem}; what it said before still holds")
        except _ChangedError:
            pass  # by the next look it has settled
        else:
            self.addresses = self._gate.passed(self._source, self.path, addresses)
            self._judged, self._good, self.read = version, True, time.time()

    def _refuse(self, version: _Version, reason: str, words: str) -> None:
        """Once for each content."""
        if version != self._judged:
            self._note(reason, words)
        self._judged, self._good = version, False

    def _note(self, reason: str, words: str) -> None:
        self._gate.note(self._source, reason, f"{self.path} {words}")


class _ChangedError(Exception):
    """Raised when a file changes while it is read."""


def _content(path: Path, version: _Version) -> bytes:
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
        if _version(os.fstat(file.fileno())) != version:
            raise _ChangedError
    return content


def _version(status: os.stat_result) -> _Version:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _denied(error: OSError) -> str:
    return f"cannot be read ({error.strerror})"
