"""Find the files that may be logs: below the watched folders, or matching the globs."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from exporter.runs.files.notice import Refusals

WILDCARDS = frozenset("*?[")
ANY_DEPTH = "**"
SYSTEM = "lost+found"  # the folder of a file system's checker, on each mounted disk: root's, without runs


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
    device: int = 0

    @property
    def relative(self) -> Path:
        """The path below the watched folder."""
        return self.path.relative_to(self.root)


class Seen(NamedTuple):
    """A file that a search came by, in as little as a folder of 200,000 of them allows."""

    path: str
    root: Path
    inode: int
    size: int
    changed: float
    device: int

    @property
    def found(self) -> Found:
        """The same, for one that may be a log."""
        path = Path(self.path)
        return Found(path, self.root, self.inode, self.size, self.changed, (path,), self.device)


class _At(NamedTuple):
    """Where a search is: the path as users see it, the same without links, and whether a link led there."""

    path: str
    real: str
    linked: bool = False

    def down(self, name: str) -> _At:
        path = os.path.join(self.path, name)  # noqa: PTH118
        return _At(path, f"{self.real.rstrip('/')}/{name}", self.linked)

    def resolved(self) -> _At:
        real = os.path.realpath(self.path)
        return _At(self.path, real, self.linked or real != self.real)


def files(patterns: Sequence[str], refusals: Refusals | None = None) -> Iterator[Found]:
    """All regular files that the patterns (folders, files, globs) lead to, each once.

    Links to folders are followed, unless they lead back to where the search is. ``refusals`` gets
    the folders that cannot be listed and the files that cannot be reached.
    """
    for seen in search(patterns, Refusals() if refusals is None else refusals):
        yield seen.found


def fixed_part(pattern: str) -> str:
    """The fixed part of a pattern; all of it if it is not a glob."""
    return str(Path(*takewhile(WILDCARDS.isdisjoint, Path(pattern).parts)))


def search(
    patterns: Iterable[str],
    refusals: Refusals,
    answered: Callable[[], None] = lambda: None,
    apart: Collection[str] = (),
    below: Path | None = None,
) -> Iterator[Seen]:
    """The regular files, each once; links, which may lead elsewhere tomorrow, last.

    ``answered`` is called with each answer of the file system; ``apart`` are folders that are not entered.
    Files are named from ``below`` on, or from the fixed part of their pattern.
    """
    at, known = _Search(refusals, answered, apart), set[object]()
    own: int | None = None
    for pattern in patterns:
        for path, root in at.files(pattern):
            status = at.status(path)
            if status is None:
                continue
            own = own or status.st_dev
            # A number weighs a third of a pair, and most files lie on one device.
            identity = status.st_ino if status.st_dev == own else (status.st_dev, status.st_ino)
            if identity not in known:
                known.add(identity)
                yield Seen(path, below or root, status.st_ino, status.st_size, status.st_mtime, status.st_dev)


class _Search:
    def __init__(self, refusals: Refusals, answered: Callable[[], None], apart: Collection[str]) -> None:
        self._refusals, self._answered, self._apart = refusals, answered, apart
        self._followed: set[tuple[str, tuple[str, ...]]] = set()

    def files(self, pattern: str) -> Iterator[tuple[str, Path]]:
        """What may be files, with the folder below which each is named."""
        links: list[tuple[str, Path]] = []
        for path, root, linked in self._candidates(pattern):
            if linked:
                links.append((path, root))
            else:
                yield path, root
        yield from links

    def _candidates(self, pattern: str) -> Iterator[tuple[str, Path, bool]]:
        """The same in any order, and whether a link led there."""
        fixed = fixed_part(pattern)
        root, rest = Path(fixed), Path(pattern).parts[len(Path(fixed).parts) :]
        if rest and os.path.exists(pattern):  # noqa: PTH110  (a folder may look like a glob)
            root, rest, fixed = Path(pattern), (), pattern
        for match in self._matches(_At(fixed, os.path.realpath(fixed)), rest):
            at = match.resolved()
            if self.status(at.path) is not None:
                yield at.path, root if str(root) != at.path else root.parent, at.linked
                continue
            links, walked = [at], list[str]()
            for link in links:  # which grows on the way
                if not any(_lies_in(link.real, other) or _lies_in(other, link.real) for other in walked):
                    walked.append(link.real)
                    for path, linked in self._walk(link, links):
                        yield path, root, linked

    def _matches(self, at: _At, rest: tuple[str, ...]) -> Iterator[_At]:
        """What the rest of a glob leads to: files and folders."""
        if rest in ((), (ANY_DEPTH,)):
            yield at
        elif rest[0] == ANY_DEPTH:
            yield from self._matches(at, rest[1:])
            for entry in self._entries(at.path):
                folder = self._folder(entry, at)
                if folder and (not entry.is_symlink() or self._is_new(folder, rest, at)):
                    yield from self._matches(folder, rest)
        elif WILDCARDS.isdisjoint(rest[0]):
            yield from self._matches(at.down(rest[0]).resolved(), rest[1:])
        else:
            for entry in self._entries(at.path, hidden=rest[0].startswith(".")):
                if fnmatch(entry.name, rest[0]):
                    found = self._folder(entry, at) if rest[1:] else at.down(entry.name)
                    if found:
                        yield from self._matches(found, rest[1:])

    def _is_new(self, folder: _At, rest: tuple[str, ...], above: _At) -> bool:
        """Whether a link leads to what was not searched before, nor to where the search is."""
        known = (folder.real, rest) in self._followed or _lies_in(above.real, folder.real)
        self._followed.add((folder.real, rest))
        return not known

    def _walk(self, start: _At, links: list[_At]) -> Iterator[tuple[str, bool]]:
        """What may be files below a folder; links to other folders are added to ``links``."""
        folders = [start]
        while folders:
            at, below = folders.pop(), list[_At]()
            for entry in self._entries(at.path):
                if not _is_folder(entry):
                    yield entry.path, at.linked or entry.is_symlink()
                elif folder := self._folder(entry, at):
                    (links if entry.is_symlink() else below).append(folder)
            folders += reversed(below)

    def _folder(self, entry: os.DirEntry[str], at: _At) -> _At | None:
        """The folder that an entry is or leads to, if it may be entered."""
        if entry.name == SYSTEM or not _is_folder(entry):
            return None
        folder = at.down(entry.name)
        folder = folder.resolved() if entry.is_symlink() else folder
        if self._apart and not {folder.real, os.path.abspath(folder.path)}.isdisjoint(self._apart):  # noqa: PTH100
            return None
        return folder

    def _entries(self, folder: str, *, hidden: bool = False) -> list[os.DirEntry[str]]:
        """The entries of a folder; their types are mostly known without a further system call."""
        try:
            with os.scandir(folder) as entries:
                found = [entry for entry in entries if hidden or not entry.name.startswith(".")]
        except OSError as error:
            self._refusals.note(Path(folder), error)
            return []
        self._answered()
        return sorted(found, key=lambda entry: entry.name)

    def status(self, path: str) -> os.stat_result | None:
        """The status of a regular file."""
        try:
            status = os.stat(path)  # noqa: PTH116  (a Path of each would cost more than the call)
        except OSError as error:
            self._refusals.note(Path(path), error)
            return None
        self._answered()
        return status if stat.S_ISREG(status.st_mode) else None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it leads to a folder. What cannot be reached is reported with the files."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
