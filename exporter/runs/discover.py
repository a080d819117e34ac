"""Find the files that may be logs: below the watched folders, or matching the globs."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WILDCARDS = frozenset("*?[")
TEXT_SAMPLE = 4096
CONTROL = bytes(range(1, 9)) + bytes(range(14, 27)) + bytes(range(28, 32))
"""Bytes that text does not hold; NUL, tabs, line ends and the escape of colour codes it does."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file and its path below the watched folder."""

    path: Path
    relative: Path


def files(patterns: list[str]) -> Iterator[Found]:
    """All regular files that the patterns (folders, files, globs) lead to, each once, sorted."""
    seen: set[tuple[int, int]] = set()
    for pattern in patterns:
        for found in sorted(_matching(pattern), key=lambda found: found.path):
            identity = _identity(found.path)
            if identity and identity not in seen:
                seen.add(identity)
                yield found


def looks_like_text(path: Path) -> bool:
    """Is the start of the file text? Checkpoints lie in run folders too.

    Raises:
        OSError: the file is gone or cannot be read.
    """
    with path.open("rb") as file:
        sample = file.read(TEXT_SAMPLE)
    return len(sample.translate(None, CONTROL)) >= 0.95 * len(sample)


def _matching(pattern: str) -> Iterator[Found]:
    if WILDCARDS.isdisjoint(pattern) or Path(pattern).exists():
        yield from _below(Path(pattern), Path(pattern))
        return
    root = _fixed_part(pattern)
    for match in glob.iglob(pattern, recursive=True):  # noqa: PTH207  (Path.glob takes no absolute pattern)
        yield from _below(Path(match), root)


def _below(path: Path, root: Path) -> Iterator[Found]:
    if path.is_file():
        yield Found(path, path.relative_to(root if root != path else path.parent))
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                found = Path(folder, name)
                yield Found(found, found.relative_to(root))


def _fixed_part(pattern: str) -> Path:
    fixed: list[str] = []
    for part in Path(pattern).parts:
        if not WILDCARDS.isdisjoint(part):
            break
        fixed.append(part)
    return Path(*fixed)


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a regular file; a link and its target are one file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if path.is_file() else None
