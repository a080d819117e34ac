"""Plain text for terminals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Say = Callable[[str], None]
"""Gets each line for the user as it comes."""


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The rows as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def ago(seconds: float) -> str:
    """An age in one rounded unit, as people say it: `57 s ago`, `5 min ago`, `3 h ago`, `2 days ago`."""
    for limit, unit, name in ((90, 1, "s"), (90 * 60, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{max(0, round(seconds / unit))} {name} ago"
    return f"{round(seconds / 86400)} days ago"


def duration(seconds: float) -> str:
    """A time span in two units: `3d 4h`, `5m 6s`."""
    for unit, name, smaller, rest in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= unit:
            return f"{int(seconds // unit)}{name} {int(seconds % unit // smaller)}{rest}"
    return f"{int(seconds)}s"
