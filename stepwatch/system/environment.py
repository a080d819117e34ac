"""Sets up `.venv` from a lock file, run by the system's Python: imports nothing to be installed."""

from __future__ import annotations

from exporter import process

if __name__ == "__main__":
    process.end_on_interrupt()

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from exporter.installation import DATA, INSTALLED

CHECKOUT = Path(__file__).resolve().parents[2]
RESOURCES = Path(DATA) if INSTALLED else CHECKOUT
"""Templates, start scripts, documentation, compose.yaml and the default config.yaml; only read."""
VENV = CHECKOUT / ".venv"
PYTHON = VENV / "bin" / "python"
RUNTIME = "requirements.lock"
DEVELOPMENT = "requirements-dev.lock"
_STAMP = VENV / "installed.json"


class SetupError(Exception):
    """Raised when this machine cannot hold the environment; says the fix."""


def main(arguments: list[str]) -> int:
    """Install the named lock file unless that very file is installed already."""
    try:
        install(arguments[0])
    except SetupError as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    return 0


def install(lock: str) -> None:
    """Bring `.venv` to what a lock file says. Raises SetupError."""
    # What development needs holds what running needs: `make up` after `make test` has nothing to do.
    locks = (lock,) if lock == RUNTIME else (lock, RUNTIME)
    digests = {name: hashlib.sha256((CHECKOUT / name).read_bytes()).hexdigest() for name in locks}
    wanted = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", **digests}
    if PYTHON.exists() and wanted.items() <= _installed().items():
        return
    _require_python()
    _require_venv()
    if not _usable():
        _say("Making .venv")
        venv.create(VENV, clear=True, with_pip=True)
    _say(f"Installing {lock} in .venv")
    _STAMP.unlink(missing_ok=True)
    options = ["--quiet", "--disable-pip-version-check", "--require-hashes"]
    command = [str(PYTHON), "-m", "pip", "install", *options, "-r", str(CHECKOUT / lock)]
    _run(command, f"pip could not install {lock}")
    _STAMP.write_text(json.dumps(wanted))


def _installed() -> dict[str, str]:
    try:
        stamp: dict[str, str] = json.loads(_STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp


def _usable() -> bool:
    if not PYTHON.exists():
        return False
    probe = "import pip, sys; sys.exit(sys.version_info < (3, 10))"
    return subprocess.run([PYTHON, "-c", probe], capture_output=True, check=False).returncode == 0


def _require_python() -> None:
    if sys.version_info < (3, 10):  # noqa: UP036 - here the system's own Python is what runs
        found = ".".join(map(str, sys.version_info[:3]))
        raise SetupError(
            f"{sys.executable} is Python {found}. Expected: 3.10 or later. "
            "Fix: name a newer one, for example `make PYTHON=python3.12 up`."
        )


def _require_venv() -> None:
    if importlib.util.find_spec("ensurepip"):
        return
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    if os.geteuid() != 0 or not Path("/usr/bin/apt-get").exists():
        raise SetupError(
            f"{sys.executable} cannot create virtual environments. Fix: sudo apt-get install {package}"
        )
    _say(f"Installing {package}")
    for command in (["update"], ["install", "-y", "--no-install-recommends", package]):
        _run(["apt-get", "-qq", *command], f"apt-get could not install {package}")


def _run(command: list[str], failure: str) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise SetupError("\n  ".join([f"{failure}. It says:", *reason]))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    process.run(lambda: main(sys.argv[1:]))
