"""Alertmanager's snapshots of silences and sent notifications, which a full disk would destroy.

Alertmanager writes each to a new file, and gives it the name of the last one even if the disk had no room for
it. Killed then, it would start without silences, and send all notifications again. So the last whole snapshot
has a second name; `alertmanager/start.sh` returns to it.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress

NAMES = ("silences", "nflog")

LEFTOVER = re.compile(r"(?:nflog|silences)\.[0-9a-f]+")
"""What Alertmanager writes a snapshot to before it takes the name of the last one."""
LEFTOVER_SECONDS = 60.0
"""Alertmanager renames such a file within moments of making it."""


def keep(folder: str) -> None:
    """Give the present snapshots in Alertmanager's data folder their second names.

    To be called only while the disk has had room for longer than the time between two snapshots.
    """
    for name in NAMES:
        present, kept = f"{folder}/{name}", f"{folder}/{name}.kept"
        with suppress(OSError):  # there is none yet, or it was replaced at this moment
            if os.path.exists(kept) and os.path.samefile(present, kept):  # noqa: PTH110, PTH121
                continue
            with suppress(FileNotFoundError):
                os.unlink(f"{kept}.new")  # noqa: PTH108
            os.link(present, f"{kept}.new")
            os.rename(f"{kept}.new", kept)  # noqa: PTH104


def remove_leftovers(folder: str, now: float) -> int:
    """Remove what Alertmanager left behind when it could not write a snapshot. Returns how many files.

    With a full disk that is an empty file every ten seconds, which it never removes.
    """
    removed = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if LEFTOVER.fullmatch(entry.name) and _is_old_and_empty(entry.stat(follow_symlinks=False), now):
                os.unlink(entry.path)  # noqa: PTH108
                removed += 1
    return removed


def _is_old_and_empty(status: os.stat_result, now: float) -> bool:
    return stat.S_ISREG(status.st_mode) and not status.st_size and now - status.st_mtime > LEFTOVER_SECONDS
