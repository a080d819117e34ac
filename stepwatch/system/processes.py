"""Finds and stops the processes of one stack, whatever their parent is now.

Each carries the stack's mark in its environment, which it inherited from supervisord. So they are
found even after supervisord was killed, and a stranger that got an old process id never is.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "STEPWATCH_STACK"
NAME = "SUPERVISOR_PROCESS_NAME"
"""Set by supervisord in the environment of each part."""
_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one: its id and when it started (clock ticks)."""

    pid: int
    started: int

    @property
    def uptime(self) -> float:
        """For how many seconds it has run."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.started / os.sysconf("SC_CLK_TCK")


def marked(mark: str) -> list[Process]:
    """The living processes of the stack with this mark, other than the one that asks."""
    pids = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return [process for pid in pids if pid != os.getpid() and (process := _identify(pid, mark))]


def named(mark: str) -> dict[str, Process]:
    """The living parts of the stack with this mark, by name: what supervisord started, not their children."""
    found = {}
    for process in marked(mark):
        with suppress(OSError):  # it ended just now
            if os.getpgid(process.pid) == process.pid and (name := _variable(process.pid, NAME)):
                found[name] = process
    return found


def belongs(pid: int, mark: str) -> bool:
    """Whether a process is of the stack with this mark."""
    return _identify(pid, mark) is not None


def stop(mark: str, *, grace: float) -> list[Process]:
    """End all processes of a stack: ask, wait so many seconds, then kill; return those who stayed."""
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


def wait(mark: str, timeout: float) -> list[Process]:
    """Wait until no process of a stack lives; return those who do after so many seconds."""
    deadline = time.monotonic() + timeout
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def suspended(pid: int) -> bool:
    """Whether a signal, such as SIGSTOP, has stopped a process."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


def module(pid: int) -> str:
    """The name of the module that a Python process runs, empty for another process."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return ""
    return words[2] if words[1:2] == ["-m"] else ""


def command(pid: int) -> str:
    """The first words of a process's command line, enough to know it by.

    The long options behind them are left out: people put secrets there.
    """
    try:
        words = (_PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return ""
    return " ".join(itertools.takewhile(lambda word: not word.startswith("--"), words[:3])).strip()


def _signal_all(mark: str, number: signal.Signals) -> None:
    for process in marked(mark):
        if _identify(process.pid, mark) == process:
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                continue


def _identify(pid: int, mark: str) -> Process | None:
    try:
        if _variable(pid, MARK) != mark:
            return None
        # The command name in brackets may hold spaces; the start time is the 20th field behind it.
        after_name = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return Process(pid, int(after_name[19]))


def _variable(pid: int, name: str) -> str:
    """The value of a variable in a process's environment, empty if it has none.

    Raises:
        OSError: there is no such process, or it is another user's.
    """
    start = f"{name}=".encode()
    variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return next((os.fsdecode(each[len(start) :]) for each in variables if each.startswith(start)), "")
