"""Programs from the package index that tests and comparisons run, each in an environment of its own."""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from stepwatch.system.releases import tools_folder
from tests.real.build import MODULES, locked
from tests.real.tools import unavailable


@functools.cache
def programs(package: str) -> Path:
    """The folder of a package's programs, as its lock pins it; kept with the other programs of the tests."""
    lock = MODULES / package / "requirements.lock"
    version = re.search(rf"^{package}==(\S+)", lock.read_text(), re.MULTILINE)
    assert version, f"{lock} pins no {package}"
    place = tools_folder() / f"{package}-{version[1]}"
    with locked(place):
        if not _is_current(place, lock):
            _install(place, lock)
    return place / "bin"


def _is_current(place: Path, lock: Path) -> bool:
    stamp = place / "installed"
    return stamp.is_file() and stamp.read_text() == _digest(lock)


def _digest(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes()).hexdigest()


def _install(place: Path, lock: Path) -> None:
    sys.stderr.write(f"Installing {place.name}, once (minutes) ...\n")
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps", "-r", lock]
    command = [place / "bin/python", "-m", "pip", "install", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        unavailable(f"{place.name} cannot be installed: {done.stderr.strip()[-500:]}")
    (place / "installed").write_text(_digest(lock))
