"""The processes of one stack, whatever their parent is now, and who listens on a port.

Each process of a stack carries its mark in the environment, which it inherited from supervisord. So they
are found even after supervisord was killed, and a stranger that got an old process id never is.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

import psutil  # type: ignore[import-untyped]

MARK = "STEPWATCH_STACK"
NAME = "SUPERVISOR_PROCESS_NAME"
"""Set by supervisord in the environment of each part."""


def marked(mark: str) -> list[psutil.Process]:
    """The living processes of the stack with this mark, other than the one that asks."""
    found = []
    for pid in psutil.pids():
        with suppress(psutil.Error):  # it ended just now, or is another user's
            process = psutil.Process(pid)
            if pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def named(mark: str) -> dict[str, psutil.Process]:
    """The living parts of the stack with this mark, by name: what supervisord started, not their children."""
    found = {}
    for process in marked(mark):
        with suppress(OSError, psutil.Error):
            if os.getpgid(process.pid) == process.pid and (name := process.environ().get(NAME)):
                found[name] = process
    return found


def belongs(pid: int, mark: str) -> bool:
    """Whether a process is of the stack with this mark."""
    with suppress(psutil.Error):
        return bool(psutil.Process(pid).environ().get(MARK) == mark)
    return False


def stop(mark: str, *, grace: float) -> list[psutil.Process]:
    """End all processes of a stack: SIGTERM, wait, SIGKILL; return those that remain."""
    _signal_all(mark, signal.SIGTERM)
    resume(mark)
    left = wait(mark, grace)
    if left:
        _signal_all(mark, signal.SIGKILL)
        left = wait(mark, 10)
    return left


def resume(mark: str) -> None:
    """Have the processes of a stack go on that a signal suspended: they could not end otherwise."""
    _signal_all(mark, signal.SIGCONT)


def wait(mark: str, timeout: float) -> list[psutil.Process]:
    """Wait until all processes of a stack have ended; return those that remain after the timeout."""
    deadline = time.monotonic() + timeout
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def suspended(pid: int) -> bool:
    """Whether a signal, such as SIGSTOP, has stopped a process."""
    with suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def command(pid: int) -> str:
    """The first words of a process's command line, enough to identify it.

    The long options behind them are left out: people put secrets there.
    """
    with suppress(psutil.Error):
        return " ".join(takewhile(lambda word: not word.startswith("--"), psutil.Process(pid).cmdline()[:3]))
    return ""


def _signal_all(mark: str, number: signal.Signals) -> None:
    for process in marked(mark):
        with suppress(psutil.Error):
            process.send_signal(number)


_SETTLE_SECONDS = 2
"""A part that starts itself again, as the exporter does with new settings, has no socket for less."""


@dataclass(frozen=True)
class Owner:
    """A process that listens on a port."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command})"


def port_taken(listen: str, port: int) -> bool:
    """Whether a server of ours could not listen there."""
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    with socket.socket(family) as probe:
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
    """The message if another process holds a part's port, else ``None``.

    ``ours`` judges the owner, who is ``None`` if /proc does not show it to us. Before that is put down
    to another user, there are two more seconds for the port to be free, or to have an owner.
    """
    deadline = time.monotonic() + _SETTLE_SECONDS
    while port_taken(listen, port) and not ours(holder := port_owner(port)):
        if holder or time.monotonic() > deadline:
            return (
                f"ports.{part}: {port} is in use by {holder or 'a process of another user'}. "
                f"Fix: stop that process, or set ports.{part} in config.yaml to a free port."
            )
        time.sleep(0.05)
    return None


def port_owner(port: int) -> Owner | None:
    """The process that listens on a port, if /proc shows it to us."""
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return Owner(connection.pid, command(connection.pid))
    return None
