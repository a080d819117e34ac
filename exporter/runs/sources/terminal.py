"""What terminals, progress bars and Ray put around the lines of a trainer."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_UP = re.compile(r"\r?((?:\x1b\[A)+)")
_RAY = re.compile(r"\s*\([^()]{1,100}\bpid=\d+[^()]{0,100}\) ?")


def pieces(line: bytes) -> Iterator[str]:
    """The texts that carriage returns glued into one line, without colours and Ray's prefix."""
    return (piece for piece, _ in drawn(line))


def drawn(line: bytes) -> Iterator[tuple[str, int]]:
    """The same texts, each with how many lines below the first one a progress bar wrote it.

    A bar below another goes down, writes, and goes up again.
    """
    text = line.decode("utf-8", "replace").replace("\0", "")
    if "\x1b" in text:
        text = _CODE.sub("", _UP.sub(lambda up: "\0" * up[1].count("A") + "\r", text))
    for raw in text.split("\r"):
        piece = raw.rstrip("\0")
        if not piece:
            continue
        prefix = _RAY.match(piece) if "pid=" in piece else None
        yield piece[prefix.end() :] if prefix else piece, len(raw) - len(piece)
