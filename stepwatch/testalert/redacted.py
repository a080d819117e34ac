"""Errors of receivers without the secrets in them: receivers repeat in their answers what they were asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from exporter import secret_shapes
from stepwatch.schema.path_types import read_secret

_SHOWN = 400
_LEAST = 6
"""A shorter part of a URL is a common word, no secret."""


def redacted(error: str, files: Iterable[Path]) -> str:
    """An error as a message may print it: one line, not too long, without what the files hold."""
    for part in sorted(_parts(files), key=len, reverse=True):
        error = error.replace(part, secret_shapes.MASK)
    printable = "".join(sign if sign.isprintable() else " " for sign in secret_shapes.masked(error))
    return printable.strip(". ")[:_SHOWN] or "no reason given"


def _parts(files: Iterable[Path]) -> set[str]:
    held = {_held(path) for path in files} - {""}
    paths = {urlsplit(each).path for each in held if "://" in each}
    segments = {segment for path in paths for segment in path.split("/")}
    return held | {part for part in paths | segments if len(part) >= _LEAST}


def _held(path: Path) -> str:
    try:
        return read_secret(path)
    except (OSError, UnicodeDecodeError):
        return ""
