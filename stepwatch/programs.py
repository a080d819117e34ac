"""The programs that the stack runs: where they are found, and how they are had if they are not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepwatch import packages
from stepwatch.config import Refused

Version = tuple[int, int, int]


class ProgramError(Refused):
    """Raised when a program is missing or too old; says what was found, what is needed, the cure."""


@dataclass(frozen=True)
class Program:
    """A program that can be run: its path, its version and the options that its build needs."""

    path: Path
    version: Version
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path} {written(self.version)}"


@dataclass(frozen=True)
class Tool:
    """A project whose programs come together: the oldest version that will do, and its package."""

    name: str
    least: Version
    package: str


@dataclass(frozen=True)
class Wanted:
    """A program that we run: what it is called, and the variable that may name another one."""

    title: str
    tool: Tool
    variable: str
    names: tuple[str, ...]


_PROMETHEUS = Tool("prometheus", (2, 42, 0), "prometheus")
_ALERTMANAGER = Tool("alertmanager", (0, 25, 0), "prometheus-alertmanager")

WANTED = {
    "prometheus": Wanted("Prometheus", _PROMETHEUS, "STEPWATCH_PROMETHEUS", ("prometheus",)),
    "promtool": Wanted("promtool", _PROMETHEUS, "STEPWATCH_PROMTOOL", ("promtool",)),
    "alertmanager": Wanted(
        "Alertmanager", _ALERTMANAGER, "STEPWATCH_ALERTMANAGER", ("alertmanager", "prometheus-alertmanager")
    ),
    "amtool": Wanted("amtool", _ALERTMANAGER, "STEPWATCH_AMTOOL", ("amtool",)),
}


def find(name: str) -> Program | None:
    """The program from its variable, from PATH or from the cache; nothing is downloaded.

    Raises:
        ProgramError: the variable names something that is no such program, or too old.
    """
    wanted = WANTED[name]
    if os.environ.get(wanted.variable):
        return _chosen(wanted, Path(os.environ[wanted.variable]))
    return next((program for program in _found(wanted) if program.version >= wanted.tool.least), None)


def obtain(name: str) -> Program:
    """The program, from the distribution's package if it is nowhere else.

    Raises:
        ProgramError: it is neither here nor to be had.
    """
    return find(name) or _from_package(name)


def packaged(name: str) -> Program:
    """The program of the distribution's package, whatever its version and whatever else is here.

    Raises:
        PackageError: there is no apt here, or it does not have the package.
    """
    wanted = WANTED[name]
    root = packages.unpacked(wanted.tool.name)
    if root is None or packages.missing_files(root):
        root = packages.unpack(wanted.tool.name, wanted.tool.package)
    found = next(_inside(root, wanted), None)
    if found is None:
        raise packages.PackageError(f"its package {wanted.tool.package} holds no {name} that runs")
    return found


def read_version(path: Path) -> Version | None:
    """The version that a program tells, ``None`` if it does not run or tells none."""
    for flag in ("--version", "-v"):
        try:
            told = subprocess.run([path, flag], capture_output=True, text=True, check=False, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if number := re.search(r"version v?(\d+)\.(\d+)(?:\.(\d+))?", told.stdout + told.stderr, re.I):
            return (int(number[1]), int(number[2]), int(number[3] or 0))
    return None


def written(version: Version) -> str:
    """``2.42.0``."""
    return ".".join(map(str, version))


def _chosen(wanted: Wanted, path: Path) -> Program:
    version = read_version(path)
    if version is None or version < wanted.tool.least:
        found = f"version {written(version)}" if version else "no program that tells a version"
        raise ProgramError(
            f"{wanted.variable}: {path} is {found}. Expected: {_needed(wanted)}. "
            "Cure: name another one, or unset the variable and let Stepwatch look for it."
        )
    return Program(path.absolute(), version)


def _found(wanted: Wanted) -> Iterator[Program]:
    for path in filter(None, map(shutil.which, wanted.names)):
        if version := read_version(Path(path)):
            yield Program(Path(path), version)
    root = packages.unpacked(wanted.tool.name)
    if root and not packages.missing_files(root):
        yield from _inside(root, wanted)


def _inside(root: Path, wanted: Wanted) -> Iterator[Program]:
    for path in (root / "usr/bin" / name for name in wanted.names):
        if version := read_version(path):
            yield Program(path, version, _options(root, path.name))


def _options(root: Path, name: str) -> tuple[str, ...]:
    # The distribution's builds look for their web pages below /usr/share.
    pages = {
        "prometheus": f"--web.local-assets={root}/usr/share/prometheus/web/",
        "prometheus-alertmanager": f"--web.ui-path={root}/usr/share/prometheus/alertmanager/no-ui/",
    }
    return (pages[name],) if name in pages else ()


def _from_package(name: str) -> Program:
    wanted = WANTED[name]
    try:
        program = packaged(name)
    except packages.PackageError as problem:
        raise _missing(wanted, problem.problem, problem.cure) from None
    if program.version < wanted.tool.least:
        raise _missing(wanted, f"the distribution packages {written(program.version)}")
    return program


def _missing(wanted: Wanted, problem: str, cure: str | None = None) -> ProgramError:
    seen = ", ".join(str(program) for program in _found(wanted))
    return ProgramError(
        f"{_needed(wanted)} is needed. Found: {seen or 'none on PATH'}; {problem}. "
        f"Cure: {f'{cure}; or ' if cure else ''}put the official release on PATH, "
        f"or set {wanted.variable} to its program."
    )


def _needed(wanted: Wanted) -> str:
    return f"{wanted.title} {written(wanted.tool.least)} or later"
