"""A copy of the checkout: the files that git knows or would take, as they are now."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from stepwatch.system.environment import CHECKOUT


def copy_checkout(folder: Path) -> None:
    """Copy the checkout into a folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        source, target = CHECKOUT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
