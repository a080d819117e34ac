"""Programs of the distribution's packages, unpacked in the user's cache instead of installed.

Installing them would start system services on the very ports that we need, and takes root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
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


def unpacked(tool: str, *, tools: Path | None = None) -> Path | None:
    """The root of the newest unpacked package of a tool (it holds ``usr/bin``), if there is one."""
    programs = (tools or tools_folder()).glob(f"{tool}-[0-9]*/usr/bin")
    newest = max(programs, key=lambda folder: folder.stat().st_mtime_ns, default=None)
    return newest and newest.parent.parent


def unpack(tool: str, package: str, *, tools: Path | None = None) -> Path:
    """Download a package with its web pages and unpack it; return the root folder.

    Raises:
        PackageError: there is no apt here, or it does not have the package.
    """
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise PackageError("this machine has no apt-get to take it from")
    tools = tools or tools_folder()
    tools.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tools, prefix=f".{tool}-") as scratch:
        _download(package, Path(scratch))
        root = Path(scratch) / "root"
        for archive in sorted(Path(scratch).glob("*.deb")):
            _run("dpkg-deb", "-x", str(archive), str(root))
        root = _keep(root, tools / f"{tool}-{_version(package, Path(scratch))}")
    _place(missing_files(root))
    return root


def missing_files(root: Path) -> list[tuple[Path, Path]]:
    """Files that a package's programs read at a fixed place: where they are, where they must be.

    The distribution's Alertmanager reads its default message templates below /usr/share, whatever
    its options say, and does not start without them.
    """
    files = [(file, Path("/") / file.relative_to(root)) for file in root.glob(_FIXED_FILES)]
    return [(file, place) for file, place in files if not place.exists()]


def _place(files: list[tuple[Path, Path]]) -> None:
    try:
        for file, place in files:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    except OSError:
        raise PackageError(
            f"its package reads {place}, which only root may write",
            f"sudo install -D -m 644 -t {place.parent} {file.parent}/*{file.suffix}",
        ) from None


def _download(package: str, folder: Path) -> None:
    try:
        _fetch(package, folder)
    except PackageError as problem:
        if os.geteuid() != 0:
            raise PackageError(problem.problem, "sudo apt-get update") from None
        _run("apt-get", "update", "-qq")
        _fetch(package, folder)


def _fetch(package: str, folder: Path) -> None:
    # A package's web pages stand in packages of their own, which are plain files.
    everything = _run(
        *("apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests"),
        *("--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", package),
    )
    pages = re.findall(r"^((?:libjs|fonts)-\S+)", everything, re.MULTILINE)
    _run("apt-get", "download", "-qq", package, *sorted(set(pages)), folder=folder)


def _version(package: str, folder: Path) -> str:
    archive = next(folder.glob(f"{package}_*.deb"))
    return archive.name.split("_")[1].replace("%3a", "~")


def _keep(root: Path, place: Path) -> Path:
    try:
        return root.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        return place  # another process was faster


def _run(*command: str, folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise PackageError(f"{command[0]} {command[1]}: {said[-1]}")
    return done.stdout
