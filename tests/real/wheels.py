"""Versions of a package beside the installed one, each in a folder that can stand first on PYTHONPATH."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from stepwatch.system.releases import tools_folder
from tests.real.build import MODULES, locked
from tests.real.tools import unavailable


def versions(package: str) -> dict[str, str]:
    """The lock's line of each version."""
    lines = (MODULES / package / "versions.lock").read_text().splitlines()
    return {line.split()[0].partition("==")[2]: line for line in lines}


@functools.cache
def wheel(package: str, version: str) -> Path:
    """The folder of that version; kept with the other programs of the tests."""
    place = tools_folder() / f"{package}-{version}"
    with locked(place):
        if not place.is_dir():
            _install(place, versions(package)[version])
    return place


def _install(place: Path, line: str) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as scratch:
        fresh, lock = Path(scratch) / "fresh", Path(scratch) / "lock"
        lock.write_text(line)
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "-r", lock]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", fresh]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            unavailable(f"{place.name} cannot be installed: {done.stderr.strip()[-500:]}")
        shutil.move(fresh, place)
