"""A worker as the front sees it: a process, a pipe for what it read, and one for how often it is to read."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from exporter.gpu.backend import Extras

READ_BYTES = 65536


class WorkerProcess:
    """Starts a worker at once. ``interval`` in seconds; ``log`` is the level and the format of its log."""

    def __init__(self, backend: str, extras: Extras, interval: float, log: tuple[str, str]) -> None:
        self._pipe, says = os.pipe()
        hears, self._orders = os.pipe()
        os.set_blocking(self._pipe, False)
        for theirs in (says, hears):
            os.set_inheritable(theirs, True)  # noqa: FBT003  (it takes no keywords)
        command = [sys.executable, "-m", "exporter.gpu.worker"]
        words = [*command, backend, json.dumps(extras), str(interval), str(says), str(hears), *log]
        # In a process group of its own: Ctrl-C is the front's to answer.
        self.pid = os.posix_spawn(sys.executable, words, os.environ, setpgroup=0)
        for theirs in (says, hears):
            os.close(theirs)
        self._rest = b""
        self.exit: int | None = None

    def messages(self) -> list[dict[str, Any]]:
        """What it said since the last call; ``exit`` tells how it ended, once it has."""
        with suppress(BlockingIOError):
            while block := os.read(self._pipe, READ_BYTES):
                self._rest += block
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def order(self, interval: float) -> None:
        """Have it read each so many seconds from now on."""
        with suppress(BrokenPipeError):
            os.write(self._orders, f"{interval}\n".encode())

    def ended(self) -> bool:
        """Is the process gone? One that the driver holds stays, even killed."""
        if self.exit is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.exit = os.waitstatus_to_exitcode(status) if pid else None
        return self.exit is not None

    def end(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if not self.ended():
            os.kill(self.pid, number)

    def close(self) -> None:
        """Hear no more from it, and have it end."""
        os.close(self._pipe)
        os.close(self._orders)

    def held(self) -> bool:
        """Does the driver hold one of its threads so that not even SIGKILL would end it?"""
        folder = f"/proc/{self.pid}/task"
        with suppress(OSError):  # it ended just now, or this is not Linux
            return any(_state(f"{folder}/{task}/stat") == "D" for task in os.listdir(folder))  # noqa: PTH208
        return False


def _state(path: str) -> str:
    with open(path) as stat:  # noqa: PTH123  (pathlib weighs 1 MB)
        return stat.read().rpartition(")")[2].split()[0]
