"""What the system does not let the exporter read."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

_NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP})
"""Errors of files that are gone, are folders by now, or never were: there is nothing to read."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A path that cannot be read, with the number of the system's error.

    ``passing``: it is a folder on the way to what was asked for.
    """

    path: Path
    number: int
    passing: bool = False


@dataclass(slots=True)
class Refusals:
    """What was refused in one look at the watched paths; each path once."""

    by_path: dict[Path, Refusal] = field(default_factory=dict)

    def note(self, path: Path, error: OSError) -> None:
        """Heed an error, if it says that something is there which cannot be read."""
        found = refusal(path, error)
        if found:
            self.by_path.setdefault(found.path, found)


def refusal(path: Path, error: OSError) -> Refusal | None:
    """What keeps the exporter from reading a path: the path, or the first folder on the way to it.

    ``None`` if there is nothing to read.
    """
    number = error.errno or errno.EIO
    if number in _NOTHING_THERE:
        return None
    folder = _closed_folder(path) if number in (errno.EACCES, errno.EPERM) else None
    return Refusal(folder, number, passing=True) if folder else Refusal(path, number)


def _closed_folder(path: Path) -> Path | None:
    """The first folder on the way to a path, and to what it links to, that may not be passed."""
    if os.access(path.parent, os.X_OK) and not os.path.islink(path):  # noqa: PTH114  (Path.is_symlink may raise)
        return None
    ways = (Path(os.path.abspath(path)), Path(os.path.realpath(path)))  # noqa: PTH100  (resolve may raise)
    folders = (folder for way in ways for folder in reversed(way.parents))
    return next((folder for folder in folders if not os.access(folder, os.X_OK)), None)
