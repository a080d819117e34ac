"""Processes by /proc: who listens on a port, which command line is theirs, whether one is suspended."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

SUPERVISORD = "supervisor.supervisord"
"""The module that keeps a native stack running."""

_SETTLE_SECONDS = 2
"""A part that starts itself again, as the exporter does with new settings, has no socket for less."""


@dataclass(frozen=True)
class Owner:
    """A process that listens on a port."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command})"

    @property
    def supervisor(self) -> str:
        """How to stop a part of another stack, which supervisord would start again; empty for others."""
        with suppress(OSError):
            leader = os.getsid(self.pid)
            return f" (kill {leader})" if SUPERVISORD in words(leader) else ""
        return ""


def words(pid: int) -> list[str]:
    """The command line of a process; empty if it has ended or is not shown to us."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
    return []


def command(pid: int) -> str:
    """The first words of it; the long options behind them are left out, since people put secrets there."""
    return " ".join(takewhile(lambda word: not word.startswith("--"), words(pid)[:3]))


def suspended(pid: int) -> bool:
    """Whether a signal, such as SIGSTOP, has stopped a process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def port_taken(listen: str, port: int) -> bool:
    """Whether a server of ours could not listen there."""
    with socket.socket(socket.AF_INET6 if ":" in listen else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listen, port))
        except OSError as problem:
            return problem.errno == errno.EADDRINUSE
    return False


def free_port(listen: str) -> int:
    """A port on which no program listens now."""
    with socket.socket(socket.AF_INET6 if ":" in listen else socket.AF_INET) as probe:
        probe.bind((listen, 0))
        return int(probe.getsockname()[1])


def port_conflict(part: str, listen: str, port: int, ours: Callable[[Owner | None], bool]) -> str | None:
    """The message if another process holds a part's port for two seconds; ``ours`` judges the owner."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while port_taken(listen, port) and not ours(holder := port_owner(port)):
        if holder or time.monotonic() > deadline:
            stop = f"stop that process{holder.supervisor if holder else ''}"
            return (
                f"ports.{part}: {port} is in use by {holder or 'a process of another user'}. "
                f"Fix: {stop}, or set ports.{part} in config.yaml to a free port."
            )
        time.sleep(0.05)
    return None


def port_owner(port: int) -> Owner | None:
    """The process that listens on a port, if /proc shows it to us."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):  # a kernel without IPv6
            for row in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:]):
                if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{row[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended just now, or is another user's
            for link in (process / "fd").iterdir():
                with suppress(OSError):  # it was closed just now
                    if str(link.readlink()) in sockets:
                        return Owner(int(process.name), command(int(process.name)))
    return None
