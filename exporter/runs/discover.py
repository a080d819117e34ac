"""Find the files that may be logs: below the watched folders, or matching the globs."""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from exporter.runs.refusal import Refusals

WILDCARDS = frozenset("*?[")
SYSTEM = "lost+found"
"""The folder of a file system's checker, on each mounted disk: root's, and nobody's run."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file, the watched folder above it, and by what its replacement shows.

    ``changed`` is when it was written last, in seconds since the epoch. ``parts`` are the files of a
    log that lies in several, oldest first; ``path`` stands for all of them then.
    """

    path: Path
    root: Path
    inode: int
    size: int
    changed: float
    parts: tuple[Path, ...]

    @property
    def relative(self) -> Path:
        """The path below the watched folder."""
        return self.path.relative_to(self.root)


class _Place(NamedTuple):
    """A path, whether it is a link or lies behind one, and the folder below which it was looked for.

    Links sort last: a link and its target are one file, known by its own name: ``latest.log`` leads
    elsewhere tomorrow.
    """

    linked: bool
    path: str
    root: Path


_path = lru_cache(maxsize=50_000)(Path)
"""Each search finds the same files, and to make a path takes longer than to look at the file."""


def files(patterns: list[str], refusals: Refusals | None = None) -> Iterator[Found]:
    """All regular files that the patterns (folders, files, globs) lead to, each once, sorted.

    Links to folders are followed, unless they lead back to where the search is. ``refusals`` gets
    the folders that cannot be listed and the files that cannot be reached.
    """
    refusals = Refusals() if refusals is None else refusals
    seen: set[tuple[int, int]] = set()
    for pattern in patterns:
        for _, name, root in sorted(_matching(pattern, refusals)):
            status = _status(name, refusals)
            if status is not None and (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                path = _path(name)
                yield Found(path, root, status.st_ino, status.st_size, status.st_mtime, (path,))


def _matching(pattern: str, refusals: Refusals) -> Iterator[_Place]:
    """Paths of files, each with the folder below which it was looked for."""
    if WILDCARDS.isdisjoint(pattern) or os.path.exists(pattern):  # noqa: PTH110  (Path.exists may raise)
        yield from _below(Path(pattern), Path(pattern), refusals)
        return
    root = _fixed_part(pattern)
    _note_unlisted(pattern, root, refusals)
    for match in glob.iglob(pattern, recursive=True):  # noqa: PTH207  (Path.glob takes no absolute pattern)
        yield from _below(Path(match), root, refusals)


def _below(path: Path, root: Path, refusals: Refusals) -> Iterator[_Place]:
    if _status(str(path), refusals) is not None:
        linked = os.path.islink(path)  # noqa: PTH114  (Path.is_symlink may raise)
        yield _Place(linked, str(path), root if root != path else path.parent)
        return
    links: list[str] = []
    yield from _walk(str(path), root, links, refusals)
    walked = [os.path.realpath(path)]
    for link in links:  # which grows on the way
        target = os.path.realpath(link)
        if not any(_lies_in(target, other) or _lies_in(other, target) for other in walked):
            walked.append(target)
            for place in _walk(link, root, links, refusals):
                yield place._replace(linked=True)


def _walk(path: str, root: Path, links: list[str], refusals: Refusals) -> Iterator[_Place]:
    """Files below a folder; links to other folders are added to ``links``."""
    folders = [path]
    while folders:
        for entry in _entries(folders.pop(), refusals):
            if not _is_folder(entry):
                yield _Place(entry.is_symlink(), entry.path, root)
            elif entry.name != SYSTEM:
                (links if entry.is_symlink() else folders).append(entry.path)


def _entries(folder: str, refusals: Refusals) -> list[os.DirEntry[str]]:
    """What is in a folder; it mostly tells what an entry is without another call of the system."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        refusals.note(Path(folder), error)
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Does it lead to a folder? What cannot be reached is told of with the files."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _note_unlisted(pattern: str, root: Path, refusals: Refusals) -> None:
    """Folders on a glob's way that cannot be listed: ``glob`` passes over them in silence."""
    parts = Path(pattern).parts
    for count in range(len(root.parts), len(parts)):
        # The line at the end has it find folders only.
        way = f"{Path(*parts[:count])}/"
        for folder in glob.iglob(way, recursive=True):  # noqa: PTH207  (as above)
            if not os.access(folder, os.R_OK | os.X_OK):
                refusals.note(Path(folder), PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def _fixed_part(pattern: str) -> Path:
    fixed: list[str] = []
    for part in Path(pattern).parts:
        if not WILDCARDS.isdisjoint(part):
            break
        fixed.append(part)
    return Path(*fixed)


def _status(path: str, refusals: Refusals) -> os.stat_result | None:
    """The status of a regular file."""
    try:
        status = os.stat(path)  # noqa: PTH116  (a Path of each would cost more than the call)
    except OSError as error:
        refusals.note(Path(path), error)
        return None
    return status if stat.S_ISREG(status.st_mode) else None
