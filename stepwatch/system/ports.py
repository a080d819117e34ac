"""Who listens on a port."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stepwatch.system import processes

_LISTENING = "0A"

_SETTLE_SECONDS = 2
"""A part that starts itself again, as the exporter does with new settings, has no socket for less."""


@dataclass(frozen=True)
class Owner:
    """A process that listens on a port."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command})"


def taken(listen: str, port: int) -> bool:
    """Whether a server of ours could not listen there."""
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listen, port))
        except OSError as problem:
            return problem.errno == errno.EADDRINUSE
    return False


def free(listen: str) -> int:
    """A port on which no program listens now."""
    with socket.socket(socket.AF_INET6 if ":" in listen else socket.AF_INET) as probe:
        probe.bind((listen, 0))
        return int(probe.getsockname()[1])


def conflict(part: str, listen: str, port: int, ours: Callable[[Owner | None], bool]) -> str | None:
    """What is to be said if a stranger holds a part's port, ``None`` if there is none.

    ``ours`` judges the owner, who is ``None`` if /proc does not show it to us. Before that is put down
    to another user, there are two more seconds for the port to be free, or to have an owner.
    """
    deadline = time.monotonic() + _SETTLE_SECONDS
    while taken(listen, port) and not ours(holder := owner(port)):
        if holder or time.monotonic() > deadline:
            return (
                f"ports.{part}: {port} is in use by {holder or 'a process of another user'}. "
                f"Fix: stop that process, or set ports.{part} in config.yaml to a free port."
            )
        time.sleep(0.05)
    return None


def owner(port: int) -> Owner | None:
    """The process that listens on a port, if /proc shows it to us."""
    sockets = {f"socket:[{inode}]" for inode in _listening_sockets(port)}
    for folder in Path("/proc").glob("[0-9]*"):
        if sockets & set(_open_files(folder)):
            return Owner(int(folder.name), processes.command(int(folder.name)))
    return None


def _listening_sockets(port: int) -> list[str]:
    rows: list[list[str]] = []
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if table.exists():
            rows += [line.split() for line in table.read_text().splitlines()[1:]]
    return [row[9] for row in rows if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port]


def _open_files(process: Path) -> list[str]:
    try:
        return [_target(link) for link in (process / "fd").iterdir()]
    except OSError:
        return []


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
