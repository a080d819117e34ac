"""Find the files that may be logs: below the watched folders, or matching the globs."""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exporter.runs.refusal import Refusals

WILDCARDS = frozenset("*?[")
TEXT_SAMPLE = 4096
SYSTEM = "lost+found"
"""The folder of a file system's checker, on each mounted disk: root's, and nobody's run."""
CONTROL = bytes(range(1, 9)) + bytes(range(14, 27)) + bytes(range(28, 32))
"""Bytes that text does not hold; NUL, tabs, line ends and the escape of colour codes it does."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file, its path below the watched folder, and by what its replacement shows."""

    path: Path
    relative: Path
    inode: int
    size: int


def files(patterns: list[str], refusals: Refusals | None = None) -> Iterator[Found]:
    """All regular files that the patterns (folders, files, globs) lead to, each once, sorted.

    ``refusals`` gets the folders that cannot be listed and the files that cannot be reached.
    """
    refusals = Refusals() if refusals is None else refusals
    seen: set[tuple[int, int]] = set()
    for pattern in patterns:
        for path, root in sorted(_matching(pattern, refusals), key=_links_last):
            status = _status(path, refusals)
            if status is not None and (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield Found(path, path.relative_to(root), status.st_ino, status.st_size)


def content(path: Path) -> str:
    """``empty``, ``text`` or ``binary``, by the start of the file: checkpoints lie in run folders too.

    Raises:
        OSError: the file is gone or cannot be read.
    """
    if not path.stat().st_size:
        return "empty"
    with path.open("rb") as file:
        sample = file.read(TEXT_SAMPLE)
    return "text" if len(sample.translate(None, CONTROL)) >= 0.95 * len(sample) else "binary"


def _matching(pattern: str, refusals: Refusals) -> Iterator[tuple[Path, Path]]:
    """Paths of files, each with the folder below which it was looked for."""
    if WILDCARDS.isdisjoint(pattern) or os.path.exists(pattern):  # noqa: PTH110  (Path.exists may raise)
        yield from _below(Path(pattern), Path(pattern), refusals)
        return
    root = _fixed_part(pattern)
    _note_unlisted(pattern, root, refusals)
    for match in glob.iglob(pattern, recursive=True):  # noqa: PTH207  (Path.glob takes no absolute pattern)
        yield from _below(Path(match), root, refusals)


def _below(path: Path, root: Path, refusals: Refusals) -> Iterator[tuple[Path, Path]]:
    if _status(path, refusals) is not None:
        yield path, root if root != path else path.parent
    for folder, folders, names in os.walk(path, onerror=lambda error: _note(error, path, refusals)):
        folders[:] = [name for name in folders if not name.startswith(".") and name != SYSTEM]
        for name in names:
            if not name.startswith("."):
                yield Path(folder, name), root


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


def _links_last(found: tuple[Path, Path]) -> tuple[bool, str]:
    """A link and its target are one file, known by its own name: ``latest.log`` leads elsewhere tomorrow."""
    return os.path.islink(found[0]), str(found[0])  # noqa: PTH114  (Path.is_symlink may raise)


def _status(path: Path, refusals: Refusals) -> os.stat_result | None:
    """The status of a regular file."""
    try:
        status = path.stat()
    except OSError as error:
        refusals.note(path, error)
        return None
    return status if stat.S_ISREG(status.st_mode) else None
