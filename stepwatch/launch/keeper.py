"""The trainer's parent: it waits for the trainer, and ends all that it started if the wrapper dies.

Three processes: the wrapper, which the user sees; below it the keeper; below that the trainer. The keeper
and the wrapper are subreapers, so that whatever the trainer leaves behind becomes a child of one of them.
If the wrapper is killed, the keeper ends the trainer and records how; if the keeper is killed, the wrapper
does.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from stepwatch.launch.failures import Outcome, oom_kills

GRACE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL for a trainer whose wrapper was killed: time to end in order."""
_IGNORED_BY_KEEPER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
_PR_SET_CHILD_SUBREAPER = 36
_REPORT = struct.Struct("=cqq")
_STARTED, _FAILED, _ENDED = b"s", b"f", b"e"


class Report(NamedTuple):
    """A report of the keeper: the trainer's process id, the errno of a failed start, or its outcome."""

    pid: int | None = None
    errno: int | None = None
    outcome: Outcome | None = None


class Keeper:
    """A running keeper, as its wrapper sees it; ``reports`` is what `report` reads, and ends with it."""

    def __init__(
        self, command: Sequence[str], connect: Callable[[], None], orphaned: Callable[[Outcome], None]
    ) -> None:
        """Start the keeper and the trainer; ``orphaned`` records a trainer that the keeper ended."""
        adopt()
        self.reports, tell = os.pipe()
        watched, self._alive = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.reports)
            os.close(self._alive)
            _keep(command, connect, orphaned, tell, watched)
        os.close(tell)
        os.close(watched)

    def report(self) -> Report | None:
        """Return the next report of the keeper; ``None`` if it has ended."""
        read = os.read(self.reports, _REPORT.size)
        if len(read) < _REPORT.size:
            return None
        kind, value, more = _REPORT.unpack(read)
        if kind == _STARTED:
            return Report(pid=value)
        return Report(errno=value) if kind == _FAILED else Report(outcome=Outcome(value, more))

    def close(self) -> None:
        """Wait for the keeper, which has reported the end."""
        os.close(self.reports)
        os.close(self._alive)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def adopt() -> None:
    """Make this process the parent of orphaned descendants."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_all(grace: float = 0.0) -> dict[int, int]:
    """Kill all descendants of this process, ``grace`` seconds after SIGTERM; return wait statuses by id."""
    statuses: dict[int, int] = {}
    until = time.monotonic() + grace
    if grace:
        _signal_all(signal.SIGTERM)
    while True:
        alive = list(descendants(os.getpid()))
        with suppress(ChildProcessError):  # those that died since are left to the next round
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                statuses[ended[0]] = ended[1]
        if not alive:
            return statuses
        if time.monotonic() >= until:
            _signal_all(signal.SIGKILL)
            if time.monotonic() > until + 2 * GRACE_SECONDS:  # the kernel does not let one go
                return statuses
        time.sleep(0.02)


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


def _signal_all(number: signal.Signals) -> None:
    for pid in list(descendants(os.getpid())):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _keep(
    command: Sequence[str],
    connect: Callable[[], None],
    orphaned: Callable[[Outcome], None],
    tell: int,
    watched: int,
) -> NoReturn:
    """Run the trainer to its end, in the keeper's process."""
    code = 1
    try:
        os.setsid()  # a terminal's signals are for the trainer
        for number in _IGNORED_BY_KEEPER:
            signal.signal(number, signal.SIG_IGN)
        adopt()
        before = oom_kills()
        wakes, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        trainer = _start(command, connect, tell)
        status = None
        while trainer is not None and status is None:
            ready, _, _ = select.select([wakes, watched], [], [])
            if wakes in ready:
                os.read(wakes, 4096)
                with suppress(ChildProcessError):
                    while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                        status = ended[1] if ended[0] == trainer else status
            if watched in ready and status is None:  # nothing is ever written to it: the wrapper has ended
                status = end_all(GRACE_SECONDS).get(trainer, signal.SIGKILL)
                orphaned(Outcome(status, oom_kills() - before))
        if status is not None:
            with suppress(OSError):
                os.write(tell, _REPORT.pack(_ENDED, status, oom_kills() - before))
        code = 0
    finally:
        os._exit(code)


def _start(command: Sequence[str], connect: Callable[[], None], tell: int) -> int | None:
    """Start the trainer and report its process id, or why it cannot be started."""
    failed, fails = os.pipe()
    pid = os.fork()
    if pid == 0:
        number = 0
        try:
            signal.set_wakeup_fd(-1)
            for each in (*_IGNORED_BY_KEEPER, signal.SIGCHLD):
                signal.signal(each, signal.SIG_DFL)
            os.setsid()
            connect()
            os.execvp(command[0], list(command))  # noqa: S606  (no shell is wanted)
        except OSError as error:
            number = error.errno or 1
        finally:
            os.write(fails, bytes([number]))
            os._exit(127)
    os.close(fails)
    reason = os.read(failed, 1)
    os.close(failed)
    if reason:
        os.waitpid(pid, 0)
        os.write(tell, _REPORT.pack(_FAILED, reason[0], 0))
        return None
    os.write(tell, _REPORT.pack(_STARTED, pid, 0))
    return pid
