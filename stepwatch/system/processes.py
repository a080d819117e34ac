"""The processes of one stack, whatever their parent is now.

Each carries the stack's mark in its environment, which it inherited from supervisord. So they are
found even after supervisord was killed, and a stranger that got an old process id never is.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
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
