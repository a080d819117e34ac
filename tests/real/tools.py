"""Which real programs the tests run with: the oldest that we promise to work on, and the newest."""

from __future__ import annotations

import functools
import os
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from stepwatch import packages, programs
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


def _tool(server: str, tool: str, version: str) -> Tool:
    try:
        found = (
            _built(server, tool)
            if build.version(server).startswith(f"{version}.")
            else _packaged(server, tool)
        )
    except (build.BuildError, packages.PackageError) as problem:
        unavailable(f"{server} {version}: {problem}")
    if not found.version.startswith(f"{version}."):
        unavailable(f"{server} {version}: this distribution packages {found.version}")
    return found


def _built(server: str, tool: str) -> Tool:
    folder = build.built(server)
    return Tool(build.version(server), folder / server, folder / tool)


def _packaged(server: str, tool: str) -> Tool:
    made, helper = (programs.packaged(name) for name in (server, tool))
    return Tool(programs.written(made.version), made.path, helper.path, made.options)


def unavailable(reason: str) -> NoReturn:
    """Skip the test that needs this; in CI, where nothing may be missing, fail it."""
    if os.environ.get("CI") == "true":
        raise RuntimeError(reason)
    raise unittest.SkipTest(reason)
