"""What terminals, progress bars and Ray put around the lines of a trainer."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RAY = re.compile(r"\s*\([^()]{1,100}\bpid=\d+[^()]{0,100}\) ?")


def pieces(line: bytes) -> Iterator[str]:
    """The texts that carriage returns glued into one line, without colours and Ray's prefix."""
    text = line.decode("utf-8", "replace")
    if "\x1b" in text:
        text = _CODE.sub("", text)
    for piece in filter(None, text.split("\r")):
        prefix = _RAY.match(piece) if "pid=" in piece else None
        yield piece[prefix.end() :] if prefix else piece
