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
"""On the way to one file; then they lead in a circle."""
MOST_BYTES = 1 << 20

_Version = tuple[int, int, int]


def real_path(path: Path, root: Path) -> Path:
    """Return a path with its links followed as they are meant in the file system that is seen at ``root``.

    Ray's links are absolute, so that from a container they would lead to nowhere. A path that does not lie
    below ``root`` stays as it is.
    """
    if not path.is_relative_to(root):
        return path
    ahead = list(reversed(path.relative_to(root).parts))
    behind: list[str] = []
    links = 0
    while ahead and links < MOST_LINKS:
        part = ahead.pop()
        try:
            linked = os.readlink(root.joinpath(*behind, part))  # noqa: PTH115  (text as it stands)
        except OSError:
            behind = behind[:-1] if part == ".." else [*behind, part]
            continue
        links += 1
        ahead += [each for each in reversed(PurePath(linked).parts) if each != "/"]
        if linked.startswith("/"):
            behind = []
    return root.joinpath(*behind, *reversed(ahead))


class DamagedError(Exception):
    """Raised for a content that is not what it should be; its text says in what."""


class Document:
    """The servers that one file lists.

    ``there``: it was there when it was last looked at. ``written`` is its own time of change and ``read``
    when it was last found in good order, in seconds since the epoch. ``parse`` returns the addresses in a
    content or raises ``DamagedError``. A content counts once it is ``settle`` seconds old, which is for
    files that are written in place.
    """

    def __init__(
        self,
        path: Path,
        source: str,
        parse: Callable[[bytes], list[str]],
        allowlist: Allowlist,
        root: Path,
        *,
        settle: float = 0.0,
    ) -> None:
        self.path = path
        self.addresses: tuple[str, ...] = ()
        self.there = False
        self.written = 0.0
        self.read: float | None = None
        self._source, self._parse, self._allowlist = source, parse, allowlist
        self._root, self._settle = root, settle
        self._judged: _Version | None = None
        self._good = False

    def look(self) -> None:
        """Read it again if it changed."""
        path = real_path(self.path, self._root)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            if self.there:
                self._note("gone", "does not exist, or is a broken link")
            self.there, self._good, self._judged = False, False, None
            return
        except OSError as error:
            self._refuse((-1, -1, -1), "unreadable", f"cannot be read ({error.strerror})")
            return
        self.there, self.written = True, status.st_mtime
        version = _version(status)
        if version == self._judged:
            self.read = time.time() if self._good else self.read
        elif not stat.S_ISREG(status.st_mode):
            self._refuse(version, "unreadable", "is not a file")
        elif status.st_size > MOST_BYTES:
            self._refuse(version, "too_large", f"has more than {MOST_BYTES} bytes")
        elif not 0 <= time.time() - status.st_mtime < self._settle:
            self._read(path, version)

    def _read(self, path: Path, version: _Version) -> None:
        try:
            with path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
                if _version(os.fstat(file.fileno())) != version:
                    return  # it is being written; by the next look it has settled
            addresses = self._parse(content)
        except OSError as error:
            self._refuse(version, "unreadable", f"cannot be read ({error.strerror})")
        except DamagedError as problem:
            self._refuse(version, "damaged", f"{problem}; its last valid content stays in use")
        else:
            self.addresses = self._allowlist.passed(self._source, self.path, addresses)
            self._judged, self._good, self.read = version, True, time.time()

    def _refuse(self, version: _Version, reason: str, words: str) -> None:
        if version != self._judged:  # once for each content
            self._note(reason, words)
        self._judged, self._good = version, False

    def _note(self, reason: str, words: str) -> None:
        self._allowlist.note(self._source, reason, f"{self.path} {words}")


def _version(status: os.stat_result) -> _Version:
    return status.st_ino, status.st_size, status.st_mtime_ns
