"""Find the files that may be logs: below the watched folders, or matching the globs.

One search stays on one file system, since another may hang: what leads elsewhere is handed on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from exporter.runs.files.mounts import Mount, Mounts, Resolution
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
    device: int = 0

    @property
    def found(self) -> Found:
        """The same, for one that may be a log."""
        path = Path(self.path)
        return Found(path, self.root, self.inode, self.size, self.changed, (path,), self.device)


class Start(NamedTuple):
    """Where a search begins, or continues on another mount.

    ``path`` is as users see it, ``real`` the same without links. ``rest`` are the parts of a glob that have
    yet to be matched; ``root`` is the folder below which files are named. ``linked``: it lies behind a link.
    """

    path: str
    real: str
    root: Path
    rest: tuple[str, ...] = ()
    linked: bool = False


class Scope:
    """What one search may touch: one mount, or all. ``beyond`` are places off it: others search them."""

    def __init__(self, mounts: Mounts | None = None, mount: Mount | None = None) -> None:
        self.beyond: list[Start] = []
        self._mounts, self._mount = mounts, mount

    def holds(self, start: Start) -> bool:
        """Whether a folder lies on this mount; if not, that is noted."""
        if self._mounts is None or not self._mounts.begins_at(start.real):
            return True
        if self._mounts.of(start.real) is self._mount:
            return True
        self.beyond.append(start)
        return False

    def follow(self, start: Start) -> str | None:
        """Where a link really leads; ``None`` if that is off this mount, which is noted, or nowhere."""
        if self._mounts is None or self._mount is None:
            return os.path.realpath(start.path)
        above, _, name = start.real.rpartition("/")
        resolution = Resolution(name, above or "/")
        try:
            self._mounts.resolve_on(self._mount, resolution)
        except OSError:
            return None
        if not resolution.done:
            self.beyond.append(start)
            return None
        return resolution.real

    def mark_alive(self) -> None:
        """Note that the file system answered."""
        if self._mount is not None:
            self._mount.mark_alive()


def files(patterns: Sequence[str], refusals: Refusals | None = None) -> Iterator[Found]:
    """All regular files that the patterns (folders, files, globs) lead to, each once.

    Links to folders are followed, unless they lead back to where the search is. ``refusals`` gets
    the folders that cannot be listed and the files that cannot be reached.
    """
    starts = [start_of(pattern, os.path.realpath(fixed_part(pattern))) for pattern in patterns]
    for seen in search(starts, Scope(), Refusals() if refusals is None else refusals):
        yield seen.found


def fixed_part(pattern: str) -> str:
    """The fixed part of a pattern; all of it if it is not a glob."""
    return str(Path(*takewhile(WILDCARDS.isdisjoint, Path(pattern).parts)))


def start_of(pattern: str, real: str) -> Start:
    """Where the search for a pattern begins; ``real`` is its fixed part without links."""
    fixed = Path(fixed_part(pattern))
    return Start(str(fixed), real, fixed, Path(pattern).parts[len(fixed.parts) :])


def search(starts: Iterable[Start], scope: Scope, refusals: Refusals) -> Iterator[Seen]:
    """The regular files below the starts, each once; links, which may lead elsewhere tomorrow, last."""
    at = _Search(scope, refusals)
    for start in starts:
        links: list[Start] = []
        for file in at.files(start):
            if file.linked:
                links.append(file)
            elif seen := at.look(file):
                yield seen
        yield from filter(None, map(at.look, links))


class _Search:
    """What a search came by so far."""

    def __init__(self, scope: Scope, refusals: Refusals) -> None:
        self._scope, self._refusals = scope, refusals
        self._known: set[object] = set()
        self._device: int | None = None
        self._followed: set[tuple[str, tuple[str, ...]]] = set()

    def files(self, start: Start) -> Iterator[Start]:
        """What may be files, among what matches."""
        if start.rest and os.path.exists(os.path.join(start.real, *start.rest)):  # noqa: PTH110, PTH118  (may raise)
            start = _down(start, "/".join(start.rest))._replace(root=Path(start.path, *start.rest), rest=())
        for match in self._matches(start):
            yield from self._below(match)

    def look(self, file: Start) -> Seen | None:
        """The file, if it is one, and was not seen before."""
        status = self._status(file.path)
        if status is None:
            return None
        self._device = self._device or status.st_dev
        # A number weighs a third of a pair, and most files lie on one device.
        identity = status.st_ino if status.st_dev == self._device else (status.st_dev, status.st_ino)
        if identity in self._known:
            return None
        self._known.add(identity)
        return Seen(file.path, file.root, status.st_ino, status.st_size, status.st_mtime, status.st_dev)

    def _matches(self, at: Start) -> Iterator[Start]:
        """What the rest of a glob leads to: files and folders."""
        if at.rest in ((), (ANY_DEPTH,)):
            yield at._replace(rest=())
            return
        part, rest = at.rest[0], at.rest[1:]
        if part == ANY_DEPTH:
            yield from self._matches(at._replace(rest=rest))
            for entry in self._entries(at.path):
                folder = self._folder(entry, at)
                if folder and self._is_new(folder, at):
                    yield from self._matches(folder)
        elif WILDCARDS.isdisjoint(part):
            below = _down(at, part)._replace(rest=rest)
            real = self._scope.follow(below)
            if real is not None:
                yield from self._matches(below._replace(real=real))
        else:
            for entry in self._entries(at.path, hidden=part.startswith(".")):
                if fnmatch(entry.name, part):
                    found = self._folder(entry, at) if rest else _down(at, entry.name)
                    if found:
                        yield from self._matches(found._replace(rest=rest))

    def _is_new(self, folder: Start, above: Start) -> bool:
        """Whether it was not searched before, by another link."""
        if folder.real == f"{above.real.rstrip('/')}/{folder.path.rpartition('/')[2]}":
            return True
        known = (folder.real, folder.rest) in self._followed or _lies_in(above.real, folder.real)
        self._followed.add((folder.real, folder.rest))
        return not known

    def _below(self, match: Start) -> Iterator[Start]:
        """The file that matches, or those below the folder that does."""
        real = self._scope.follow(match)
        if real is None:
            return
        if self._status(match.path) is not None:
            root = match.root if str(match.root) != match.path else match.root.parent
            yield match._replace(root=root, linked=match.linked or real != match.real)
            return
        links: list[Start] = []
        yield from self._walk(match._replace(real=real), links)
        walked = [real]
        for link in links:  # which grows on the way
            if not any(_lies_in(link.real, other) or _lies_in(other, link.real) for other in walked):
                walked.append(link.real)
                yield from self._walk(link, links)

    def _walk(self, start: Start, links: list[Start]) -> Iterator[Start]:
        """What may be files below a folder; links to other folders are added to ``links``."""
        folders = [start]
        while folders:
            at, below = folders.pop(), list[Start]()
            for entry in self._entries(at.path):
                if entry.is_symlink():
                    link = _down(at, entry.name)._replace(linked=True)
                    real = self._scope.follow(link)
                    if real is not None and _is_folder(entry):
                        links.append(link._replace(real=real))
                    elif real is not None:
                        yield link
                elif not _is_folder(entry):
                    yield Start(entry.path, "", at.root, (), at.linked)
                elif folder := self._folder(entry, at):
                    below.append(folder)
            folders += reversed(below)

    def _folder(self, entry: os.DirEntry[str], at: Start) -> Start | None:
        """The folder that an entry is or leads to, if it is this search's."""
        folder = _down(at, entry.name)
        if entry.is_symlink():
            real = self._scope.follow(folder)
            return folder._replace(real=real) if real is not None and _is_folder(entry) else None
        if entry.name == SYSTEM or not _is_folder(entry) or not self._scope.holds(folder):
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
        self._scope.mark_alive()
        return sorted(found, key=lambda entry: entry.name)

    def _status(self, path: str) -> os.stat_result | None:
        """The status of a regular file."""
        try:
            status = os.stat(path)  # noqa: PTH116  (a Path of each would cost more than the call)
        except OSError as error:
            self._refusals.note(Path(path), error)
            return None
        self._scope.mark_alive()
        return status if stat.S_ISREG(status.st_mode) else None


def _down(at: Start, name: str) -> Start:
    return at._replace(
        path=os.path.join(at.path, name),  # noqa: PTH118
        real=f"{at.real.rstrip('/')}/{name}",
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it leads to a folder. What cannot be reached is reported with the files."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
