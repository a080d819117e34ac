"""Find the files that may be logs: below the watched folders, or matching the globs."""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from exporter.runs.refusal import Refusals

WILDCARDS = frozenset("*?[")
SYSTEM = "lost+found"
"""The folder of a file system's checker, on each mounted disk: root's, and nobody's run."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file, its path below the watched folder, and by what its replacement shows.

    ``changed`` is when it was written last, in seconds since the epoch. ``parts`` are the files of a
    log that lies in several, oldest first; ``path`` stands for all of them then.
    """

    path: Path
    relative: Path
    inode: int
    size: int
    changed: float
    parts: tuple[Path, ...]


class _Place(NamedTuple):
    """A path, the folder below which it was looked for, and whether a link to a folder led there."""

    path: Path
    root: Path
    linked: bool = False


def files(patterns: list[str], refusals: Refusals | None = None) -> Iterator[Found]:
    """All regular files that the patterns (folders, files, globs) lead to, each once, sorted.

    Links to folders are followed, unless they lead back to where the search is. ``refusals`` gets
    the folders that cannot be listed and the files that cannot be reached.
    """
    refusals = Refusals() if refusals is None else refusals
    seen: set[tuple[int, int]] = set()
    for pattern in patterns:
        for place in sorted(_matching(pattern, refusals), key=_links_last):
            path, status = place.path, _status(place.path, refusals)
            if status is not None and (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                relative = path.relative_to(place.root)
                yield Found(path, relative, status.st_ino, status.st_size, status.st_mtime, (path,))


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
    if _status(path, refusals) is not None:
        yield _Place(path, root if root != path else path.parent)
    links: list[Path] = []
    yield from _walk(path, root, links, refusals)
    walked = [os.path.realpath(path)]
    for link in links:  # which grows on the way
        target = os.path.realpath(link)
        if not any(_lies_in(target, other) or _lies_in(other, target) for other in walked):
            walked.append(target)
            for place in _walk(link, root, links, refusals):
                yield place._replace(linked=True)


def _walk(path: Path, root: Path, links: list[Path], refusals: Refusals) -> Iterator[_Place]:
    """Files below a folder; links to other folders are added to ``links``."""
    for folder, folders, names in os.walk(path, onerror=lambda error: _note(error, path, refusals)):
        folders[:] = [name for name in folders if not name.startswith(".") and name != SYSTEM]
        paths = (Path(folder, name) for name in folders)
        links += [link for link in paths if os.path.islink(link)]  # noqa: PTH114  (is_symlink may raise)
        for name in names:
            if not name.startswith("."):
                yield _Place(Path(folder, name), root)


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _note(error: OSError, path: Path, refusals: Refusals) -> None:
    refusals.note(Path(error.filename or path), error)


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


def _links_last(place: _Place) -> tuple[bool, str]:
    """A link and its target are one file, known by its own name: ``latest.log`` leads elsewhere tomorrow."""
    linked = place.linked or os.path.islink(place.path)  # noqa: PTH114  (Path.is_symlink may raise)
    return linked, str(place.path)


def _status(path: Path, refusals: Refusals) -> os.stat_result | None:
    """The status of a regular file."""
    try:
        status = path.stat()
    except OSError as error:
        refusals.note(path, error)
        return None
    return status if stat.S_ISREG(status.st_mode) else None
