"""The processes that work in a folder, as all of a native stack do in its state folder."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def working_in(folder: Path) -> set[int]:
    """The ids of the living processes whose working directory a folder is, or was; without our own."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended just now, or is a zombie
            if str((process / "cwd").readlink()) in (str(folder), f"{folder} (deleted)"):
                found.add(int(process.name))
    return found - {os.getpid()}
