"""Programs of the distribution's packages, unpacked in the user's cache instead of installed.

Installing them would start system services on the very ports that we need, and takes root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

_FIXED_FILES = "usr/share/prometheus/alertmanager/*.tmpl"


class PackageError(Exception):
    """Raised when the distribution cannot give a package; says why, and what may help."""

    def __init__(self, problem: str, fix: str | None = None) -> None:
        super().__init__(f"{problem}. Fix: {fix}" if fix else problem)
        self.problem, self.fix = problem, fix


def tools_folder() -> Path:
    """Where unpacked and built programs are kept, one folder ``<tool>-<version>`` each."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "stepwatch" / "tools"


def keep(made: Path, place: Path) -> Path:
    """Move a folder to its place among the tools, unless another process was faster."""
    try:
        return made.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        return place


def unpacked(tool: str, package: str) -> Path | None:
    """The root (it holds ``usr/bin``) of the package in the version that apt would install, if it is here.

    A home folder may be shared with machines of other distributions, whose packages are of no use here.
    """
    if next(tools_folder().glob(f"{tool}-[0-9]*/usr/bin"), None) is None or not shutil.which("apt-cache"):
        return None
    with suppress(PackageError):
        candidate = re.search(r"^\s*Candidate: (\S+)", _run("apt-cache", "policy", package), re.MULTILINE)
        root = tools_folder() / f"{tool}-{candidate[1].replace(':', '~')}" if candidate else None
        return root if root and root.is_dir() else None
    return None


def unpack(tool: str, package: str) -> Path:
    """Download a package with its web pages and unpack it; return the root folder.

    Raises:
        PackageError: there is no apt here, or it does not have the package.
    """
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise PackageError("this machine has no apt-get to install it")
    tools = tools_folder()
    tools.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tools, prefix=f".{tool}-") as name:
        scratch = Path(name)
        try:
            _fetch(package, scratch)
        except PackageError as problem:
            if os.geteuid() != 0:
                raise PackageError(problem.problem, "sudo apt-get update") from None
            _run("apt-get", "update", "-qq")
            _fetch(package, scratch)
        for archive in sorted(scratch.glob("*.deb")):
            _run("dpkg-deb", "-x", str(archive), str(scratch / "root"))
        version = next(scratch.glob(f"{package}_*.deb")).name.split("_")[1].replace("%3a", "~")
        root = keep(scratch / "root", tools / f"{tool}-{version}")
    place_files(missing_files(root))
    return root


def missing_files(root: Path) -> list[tuple[Path, Path]]:
    """Files that a package's programs read at a fixed place: where they are, where they must be.

    The distribution's Alertmanager reads its default message templates below /usr/share, whatever
    its options say, and does not start without them.
    """
    files = [(file, Path("/") / file.relative_to(root)) for file in root.glob(_FIXED_FILES)]
    return [(file, place) for file, place in files if not place.exists()]


def place_files(files: list[tuple[Path, Path]]) -> None:
    """Copy files to their places.

    Raises:
        PackageError: only root may write there.
    """
    try:
        for file, place in files:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    except OSError:
        raise PackageError(
            f"its package reads {place}, which only root may write",
            f"sudo install -D -m 644 -t {place.parent} {file.parent}/*{file.suffix}",
        ) from None


def _fetch(package: str, folder: Path) -> None:
    # A package's web pages are in packages of their own, which are plain files.
    everything = _run(
        *("apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests"),
        *("--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", package),
    )
    pages = re.findall(r"^((?:libjs|fonts)-\S+)", everything, re.MULTILINE)
    _run("apt-get", "download", "-qq", package, *sorted(set(pages)), folder=folder)


def _run(*command: str, folder: Path | None = None) -> str:
    # In English, since its answer is read.
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        output = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise PackageError(f"{command[0]} {command[1]}: {output[-1]}")
    return done.stdout
