"""Two processes of which either ends all that the trainer started, if the other is killed.

The user sees the first: it passes signals on and ends as the trainer does. Below it the second runs the
trainer. Both are subreapers, so whatever the trainer leaves behind is a child of one of them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

GRACE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL for a trainer whose wrapper was killed: time to end in order."""
TO_GROUP = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""A terminal's signals are for all of its foreground, others for the program alone."""
ENDING = (*TO_GROUP, signal.SIGTERM)
PASSED_ON = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH)
_STATUS = struct.Struct("i")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def kept(work: Callable[[int], int], killed: Callable[[], int], terminal: list[Any] | None) -> int:
    """Run ``work`` in a process of its own, and return what it returns, the wait status of the trainer.

    ``work`` gets a file descriptor: each byte is a signal to this process, the end is this process's.
    ``killed`` returns the status if ``work`` was killed. The terminal, if any, is raw meanwhile.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    orders, order = os.pipe()
    results, result = os.pipe()

    def pass_on(number: int, _: object) -> None:
        with suppress(OSError):
            os.write(order, bytes([number]))

    heard = [each for each in PASSED_ON if signal.getsignal(each) is not signal.SIG_IGN]  # nohup
    for each in heard:
        signal.signal(each, pass_on)
    try:
        if terminal:
            tty.setraw(0, termios.TCSANOW)
        pid = os.fork()
        if pid == 0:
            for each in heard:
                signal.signal(each, signal.SIG_IGN)
            os.setsid()
            os.close(order)
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            os.write(result, _STATUS.pack(work(orders)))
            os._exit(0)
        os.close(orders)
        os.close(result)
        found = os.read(results, _STATUS.size)
        _, status = os.waitpid(pid, 0)
    finally:
        if terminal:
            termios.tcsetattr(0, termios.TCSADRAIN, terminal)
        for each in heard:
            signal.signal(each, signal.SIG_DFL)
    if found:
        return int(_STATUS.unpack(found)[0])
    end_all(GRACE_SECONDS)
    return killed() if os.WIFSIGNALED(status) else status


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process once the thread that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # too late
        os.kill(os.getpid(), signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def end_all(grace: float) -> dict[int, int]:
    """Kill all descendants of this process, ``grace`` seconds after SIGTERM; return wait statuses by id."""
    statuses: dict[int, int] = {}
    until = time.monotonic() + grace
    send(signal.SIGTERM, descendants(os.getpid()))
    while True:
        alive = list(descendants(os.getpid()))
        with suppress(ChildProcessError):  # those that died since are left to the next round
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                statuses[ended[0]] = ended[1]
        # After twice the grace the kernel does not let one go.
        if not alive or time.monotonic() > until + 2 * GRACE_SECONDS:
            return statuses
        if time.monotonic() >= until:
            send(signal.SIGKILL, alive)
        time.sleep(0.02)


def send(number: int, pids: Iterable[int]) -> None:
    """Send a signal to those processes that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def descendants(of: int) -> Iterator[int]:
    """Yield the processes below one, by the process file system."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  (a path for each process of the machine)
        if name.isdecimal():
            with suppress(OSError, IndexError, ValueError):
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    fields = file.read().rpartition(b")")[2].split()
                if fields[0] != b"Z":
                    children.setdefault(int(fields[1]), []).append(int(name))
    left = children.get(of, [])
    while left:
        pid = left.pop()
        yield pid
        left += children.get(pid, ())
