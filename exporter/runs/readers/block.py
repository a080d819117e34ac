"""What one look at a log brought."""

from __future__ import annotations

from dataclasses import dataclass, field

BLOCK = 2 * 1024 * 1024
"""Bytes read at a time, and the longest line that is read at all. Twice that weighs 6 MB more, for good."""

HEAD = 256
"""Bytes at the start of a file by which it is known again."""


@dataclass(slots=True)
class Block:
    """Whole lines, without their line ends; in formats that know none, whatever stands for them.

    ``start`` is the offset of the first line, ``size`` the bytes read. ``restarted``: the file was
    emptied or replaced before these lines. ``written`` is its time of change (seconds since the
    epoch). ``more``: there is more to read at once. ``too_long`` and ``broken`` count what had to be
    left out. ``grown``: some of its bytes were not there at the look before.
    """

    lines: list[bytes] = field(default_factory=list)
    start: int = 0
    size: int = 0
    restarted: bool = False
    too_long: int = 0
    broken: int = 0
    written: float = 0.0
    more: bool = False
    grown: bool = True

    @property
    def end(self) -> int:
        """Where the bytes end that were read."""
        return self.start + self.size
