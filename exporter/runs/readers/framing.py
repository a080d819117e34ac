"""Where one line of a file ends and the next begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Pieces:
    """Whole lines of some bytes; ``used`` bytes are done with, the rest waits for more.

    ``too_long`` and ``broken`` count lines that were left out.
    """

    lines: list[bytes] = field(default_factory=list)
    used: int = 0
    too_long: int = 0
    broken: int = 0


class Framing(Protocol):
    """Cuts the bytes of a file into lines, in order, from its start on."""

    def split(self, data: bytes, *, full: bool) -> Pieces:
        """Cut off what is whole. ``full``: a line that does not fit into ``data`` is too long."""

    def rest(self, data: bytes) -> list[bytes]:
        """What may be read of a last line that its writer has left unfinished."""

    def reset(self) -> None:
        """The next bytes are the start of a file."""


class TextLines:
    """Text; NUL bytes, which a file emptied under its writer begins with, are dropped."""

    def __init__(self) -> None:
        self._skipping = False

    def split(self, data: bytes, *, full: bool) -> Pieces:
        line_end = b"\n"
        end = data.rfind(line_end) + 1
        if not end and full:
            line_end = b"\r"  # hours of a progress bar that redraws itself
            end = data.rfind(line_end) + 1
        if not end:
            return self._without_line_end(data, full=full)
        lines = data[: end - 1].replace(b"\0", b"").split(line_end)
        if self._skipping:
            self._skipping = False
            lines.pop(0)
        return Pieces(lines, end)

    def _without_line_end(self, data: bytes, *, full: bool) -> Pieces:
        """A torn line waits for its end; one that is too long is dropped as it comes."""
        if not full:
            return Pieces()
        first, self._skipping = not self._skipping, True
        return Pieces(used=len(data), too_long=int(first))

    def rest(self, data: bytes) -> list[bytes]:
        return [] if self._skipping or not data else [data.replace(b"\0", b"")]

    def reset(self) -> None:
        self._skipping = False
