"""The ends of log files."""

from __future__ import annotations

from pathlib import Path

_TAIL_BYTES = 16_384


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log, none when there is no such file."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[-count:]
