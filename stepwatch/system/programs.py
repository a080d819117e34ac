"""The programs of the stack: named by the user, on PATH, downloaded before, released, or packaged."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from stepwatch.schema.errors import Refused
from stepwatch.system import releases
from stepwatch.system.environment import RESOURCES
from stepwatch.system.releases import Release, keep, tools_folder
from stepwatch.system.terminal import Say

Version = tuple[int, int, int]


class ProgramError(Refused):
    """Raised when a program is missing or too old; says what was found, what is needed, the fix."""


class Source(Enum):
    """Where a program is from; the value says it in words."""

    NAMED = "named by {variable}"
    PATH = "on PATH"
    RELEASE = "the official release"
    PACKAGE = "the distribution's package"


@dataclass(frozen=True)
class Program:
    """A program that can be run: its path, its version and the options that its build needs."""

    path: Path
    version: Version
    options: tuple[str, ...] = ()
    source: Source = field(default=Source.NAMED, compare=False)

    def __str__(self) -> str:
        return f"{self.path} {written(self.version)}"


@dataclass(frozen=True)
class Tool:
    """A project whose programs come together: ``least`` and ``release`` are versions, ``package`` apt's."""

    name: str
    least: Version
    release: Release
    package: str


@dataclass(frozen=True)
class Wanted:
    """A program that we run: what it is called, and the variable that may name another one."""

    title: str
    tool: Tool
    variable: str
    names: tuple[str, ...]

    @property
    def needed(self) -> str:
        """It and its oldest version that will do."""
        return f"{self.title} {written(self.tool.least)} or later"


def _tool(name: str, least: Version, package: str) -> Tool:
    """Return a tool with the release that compose.yaml pins: versions are written there and nowhere else."""
    compose = (RESOURCES / "compose.yaml").read_text(encoding="utf-8")
    (pinned,) = re.findall(rf"prom/{name}:v([\d.]+)", compose)
    return Tool(name, least, Release(name, pinned), package)


_PROMETHEUS = _tool("prometheus", (2, 42, 0), "prometheus")
_ALERTMANAGER = _tool("alertmanager", (0, 25, 0), "prometheus-alertmanager")

WANTED = {
    "prometheus": Wanted("Prometheus", _PROMETHEUS, "STEPWATCH_PROMETHEUS", ("prometheus",)),
    "promtool": Wanted("promtool", _PROMETHEUS, "STEPWATCH_PROMTOOL", ("promtool",)),
    "alertmanager": Wanted(
        "Alertmanager", _ALERTMANAGER, "STEPWATCH_ALERTMANAGER", ("alertmanager", "prometheus-alertmanager")
    ),
    "amtool": Wanted("amtool", _ALERTMANAGER, "STEPWATCH_AMTOOL", ("amtool",)),
}


def find(name: str) -> Program | None:
    """The program from its variable, PATH or the cache, a tool beside its server. Raises ProgramError."""
    wanted = WANTED[name]
    if named := os.environ.get(wanted.variable):
        version = read_version(Path(named))
        if version is None or version < wanted.tool.least:
            found = f"version {written(version)}" if version else "not a program that prints its version"
            raise ProgramError(
                f"{wanted.variable}: {named} is {found}. Expected: {wanted.needed}. "
                "Fix: name another one, or unset the variable and let Stepwatch look for it."
            )
        return Program(Path(named).absolute(), version)
    if name != wanted.tool.name and (server := find(wanted.tool.name)):
        places = _beside(server, wanted)
    else:
        places = _found(wanted)
    return next((program for program in places if program.version >= wanted.tool.least), None)


def obtain(name: str, say: Say) -> Program:
    """The program, downloaded if it is not here; says which one it is, and why. Raises ProgramError."""
    wanted = WANTED[name]
    program = find(name) or _from_release(wanted, say) or _from_package(name)
    origin = program.source.value.format(variable=wanted.variable)
    if program.source in (Source.RELEASE, Source.PACKAGE):
        origin += f" (on PATH: {', '.join(map(str, _on_path(wanted))) or 'none'})"
    say(f"{wanted.title} {written(program.version)}: {program.path}, {origin}")
    return program


def packaged(name: str) -> Program:
    """The program of the distribution's package, whatever its version and whatever else is here."""
    wanted = WANTED[name]
    tool, package = wanted.tool.name, wanted.tool.package
    root = unpacked_package(tool, package)
    if root is None or missing_files(root):
        root = unpack_package(tool, package)
    found = next(_inside(root, wanted), None)
    if found is None:
        raise PackageError(f"its package {package} holds no {name} that runs")
    return found


def read_version(path: Path) -> Version | None:
    """The version that a program prints, ``None`` if it does not run or prints none."""
    for flag in ("--version", "-v"):
        try:
            answer = subprocess.run([path, flag], capture_output=True, text=True, check=False, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if number := re.search(r"version v?(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout + answer.stderr, re.I):
            return (int(number[1]), int(number[2]), int(number[3] or 0))
    return None


def written(version: Version) -> str:
    """``2.42.0``."""
    return ".".join(map(str, version))


def _found(wanted: Wanted) -> Iterator[Program]:
    """Every one of its name that is here, of whatever version."""
    yield from _on_path(wanted)
    if released := releases.kept(wanted.tool.release):
        yield from _in(released, wanted, Source.RELEASE)
    root = unpacked_package(wanted.tool.name, wanted.tool.package)
    if root and not missing_files(root):
        yield from _inside(root, wanted)


def _beside(server: Program, wanted: Wanted) -> Iterator[Program]:
    yield from _in(server.path.resolve().parent, wanted, server.source)
    if server.source in (Source.NAMED, Source.PATH):
        yield from _on_path(wanted)


def _on_path(wanted: Wanted) -> Iterator[Program]:
    for path in filter(None, map(shutil.which, wanted.names)):
        if version := read_version(Path(path)):
            yield Program(Path(path), version, source=Source.PATH)


def _in(folder: Path, wanted: Wanted, source: Source) -> Iterator[Program]:
    for name in wanted.names:
        if version := read_version(folder / name):
            yield Program(folder / name, version, source=source)


def _inside(root: Path, wanted: Wanted) -> Iterator[Program]:
    """Those of an unpacked package."""
    # The distribution's builds look for their web pages below /usr/share.
    pages = {
        "prometheus": f"--web.local-assets={root}/usr/share/prometheus/web/",
        "prometheus-alertmanager": f"--web.ui-path={root}/usr/share/prometheus/alertmanager/no-ui/",
    }
    for program in _in(root / "usr/bin", wanted, Source.PACKAGE):
        name = program.path.name
        yield replace(program, options=(pages[name],) if name in pages else ())


def _from_release(wanted: Wanted, say: Say) -> Program | None:
    """The official release; ``None``, with a message to the user, if it is not available."""
    release = wanted.tool.release
    say(f"{wanted.needed} is not here (found: {_seen(wanted)}): getting the official {release.version}.")
    try:
        folder = releases.obtain(release, say)
    except releases.ReleaseError as problem:
        say(f"  download failed: {problem}. Using the distribution's package.")
        return None
    return next(_in(folder, wanted, Source.RELEASE), None)


def _from_package(name: str) -> Program:
    wanted, fix = WANTED[name], ""
    try:
        program = packaged(name)
        if program.version >= wanted.tool.least:
            return program
        problem = f"the distribution packages {written(program.version)}"
    except PackageError as error:
        problem, fix = error.problem, f"{error.fix}; or " if error.fix else ""
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}"
    raise ProgramError(
        f"{wanted.needed} is needed. Found: {_seen(wanted)}; {problem}. "
        f"Fix: {fix}put the official release on PATH, or set {wanted.variable} to its program."
    )


def _seen(wanted: Wanted) -> str:
    return ", ".join(map(str, _found(wanted))) or "none on PATH"


# Packages are unpacked in the user's cache: installing them would start system services on the very ports
# that we need, and takes root.
_FIXED_FILES = "usr/share/prometheus/alertmanager/*.tmpl"


class PackageError(Exception):
    """Raised when the distribution cannot give a package; says why, and what may help."""

    def __init__(self, problem: str, fix: str | None = None) -> None:
        super().__init__(f"{problem}. Fix: {fix}" if fix else problem)
        self.problem, self.fix = problem, fix


def unpacked_package(tool: str, package: str) -> Path | None:
    """The root (it holds ``usr/bin``) of the package in the version that apt would install, if it is here."""
    if next(tools_folder().glob(f"{tool}-[0-9]*/usr/bin"), None) is None or not shutil.which("apt-cache"):
        return None
    with suppress(PackageError):
        candidate = re.search(r"^\s*Candidate: (\S+)", _run_apt("apt-cache", "policy", package), re.MULTILINE)
        root = tools_folder() / f"{tool}-{candidate[1].replace(':', '~')}" if candidate else None
        return root if root and root.is_dir() else None
    return None


def unpack_package(tool: str, package: str) -> Path:
    """Download a package with its web pages and unpack it; return the root folder. Raises PackageError."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise PackageError("this machine has no apt-get to install it")
    tools = tools_folder()
    tools.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tools, prefix=f".{tool}-") as name:
        scratch = Path(name)
        try:
            _fetch_package(package, scratch)
        except PackageError as problem:
            if os.geteuid() != 0:
                raise PackageError(problem.problem, "sudo apt-get update") from None
            _run_apt("apt-get", "update", "-qq")
            _fetch_package(package, scratch)
        for archive in sorted(scratch.glob("*.deb")):
            _run_apt("dpkg-deb", "-x", str(archive), str(scratch / "root"))
        version = next(scratch.glob(f"{package}_*.deb")).name.split("_")[1].replace("%3a", "~")
        root = keep(scratch / "root", tools / f"{tool}-{version}")
    place_files(missing_files(root))
    return root


def missing_files(root: Path) -> list[tuple[Path, Path]]:
    """Files that Debian's Alertmanager reads below /usr/share: where they are, where they must be."""
    files = [(file, Path("/") / file.relative_to(root)) for file in root.glob(_FIXED_FILES)]
    return [(file, place) for file, place in files if not place.exists()]


def place_files(files: list[tuple[Path, Path]]) -> None:
    """Copy files to their places. Raises PackageError if only root may write there."""
    try:
        for file, place in files:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    except OSError:
        raise PackageError(
            f"its package reads {place}, which only root may write",
            f"sudo install -D -m 644 -t {place.parent} {file.parent}/*{file.suffix}",
        ) from None


def _fetch_package(package: str, folder: Path) -> None:
    # A package's web pages are in packages of their own, which are plain files.
    everything = _run_apt(
        *("apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests"),
        *("--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", package),
    )
    pages = re.findall(r"^((?:libjs|fonts)-\S+)", everything, re.MULTILINE)
    _run_apt("apt-get", "download", "-qq", package, *sorted(set(pages)), folder=folder)


def _run_apt(*command: str, folder: Path | None = None) -> str:
    # In English, since its answer is read.
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        output = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise PackageError(f"{command[0]} {command[1]}: {output[-1]}")
    return done.stdout
