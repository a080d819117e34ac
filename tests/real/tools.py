"""The real programs that tests run: the oldest versions that we promise to work on, and the newest."""

from __future__ import annotations

import functools
import os
import sys
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from stepwatch.system import programs, releases
from stepwatch.system.releases import Release, ReleaseError, tools_folder
from tests.real import build


@dataclass(frozen=True)
class Tool:
    """A server and its command-line tool."""

    version: str
    server: Path
    tool: Path
    options: tuple[str, ...] = ()


@functools.cache
def prometheus(version: str) -> Tool:
    """Prometheus and promtool: "2.42" or "3.13"."""
    return _tool("prometheus", "promtool", version)


@functools.cache
def alertmanager(version: str) -> Tool:
    """Alertmanager and amtool: "0.25" or "0.31"."""
    return _tool("alertmanager", "amtool", version)


EVERYTHING = tuple(
    functools.partial(get, version)
    for get, versions in ((prometheus, ("2.42", "3.13")), (alertmanager, ("0.25", "0.31")))
    for version in versions
)
"""Gives each program that the tests use."""


def newest(name: str) -> Path:
    """The folder with a project's newest programs: cached, else the official release, else built with Go.

    Raises:
        BuildError: the release cannot be downloaded, and Go is missing or too old, or the build failed.
    """
    place = tools_folder() / f"{name}-{build.version(name)}"
    with build.locked(place):
        if (place / "bin").is_dir():
            return place / "bin"
        try:
            return _released(_release(name))
        except ReleaseError as problem:
            build.say(f"{place.name}: no official release ({problem}); building it with Go, once (minutes).")
        return build.build(name, place)


def _release(name: str) -> Release:
    version = build.version(name)
    if name != "compose":
        return Release(name, version)
    file = "docker-compose-linux-{machine}"
    return Release(name, version, owner="docker", file=file, sums="checksums.txt")


def _released(release: Release) -> Path:
    if kept := releases.kept(release):
        return kept
    sys.audit("tests.download", release.stem)  # `pytest --fast` refuses it
    build.say(f"{release.name}-{release.version}: downloading the official release, once.")
    return releases.obtain(release, build.say)


def _tool(server: str, tool: str, version: str) -> Tool:
    least = programs.written(programs.WANTED[server].tool.least)
    try:
        if least.startswith(f"{version}."):
            return _oldest(server, tool, Release(server, least))
        folder = newest(server)
    except (build.BuildError, ReleaseError) as problem:
        unavailable(f"{server} {version}: {problem}")
    return Tool(build.version(server), folder / server, folder / tool)


def _oldest(server: str, tool: str, release: Release) -> Tool:
    """From the distribution's package if that is the oldest version, else the official release."""
    with build.locked(tools_folder() / f"{release.name}-{release.version}"):
        if releases.kept(release) is None and (found := _packaged(server, tool)):
            if found.version == release.version:
                return found
            build.say(f"{release.name}-{release.version}: the distribution packages {found.version}.")
        folder = _released(release)
    return Tool(release.version, folder / server, folder / tool)


def _packaged(server: str, tool: str) -> Tool | None:
    try:
        made, helper = (programs.packaged(name) for name in (server, tool))
    except programs.PackageError as problem:
        build.say(f"{server}: no package ({problem}).")
        return None
    return Tool(programs.written(made.version), made.path, helper.path, made.options)


def unavailable(reason: str) -> NoReturn:
    """Skip the test that needs this; in CI, where nothing may be missing, fail it."""
    if os.environ.get("CI") == "true":
        raise RuntimeError(reason)
    raise unittest.SkipTest(reason)
