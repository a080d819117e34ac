"""Who listens on a port."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

from stepwatch.system import processes

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
    """The message if another process holds a part's port, else ``None``.

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
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return Owner(connection.pid, processes.command(connection.pid))
    return None
