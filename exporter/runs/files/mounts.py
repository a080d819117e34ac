"""Calls to file systems in threads of their own: one that hangs holds up no other.

A call to a dead file server (NFS, FUSE) never returns, and nothing can end it but SIGKILL. So no thread that
others wait for makes one.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from errno import ELOOP, ETIMEDOUT
from threading import Condition, Thread
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 2.0
"""How long a call is waited for: a disk that spins up takes longer than others may be kept waiting."""
HUNG_SECONDS = 10.0
"""A file system that gives no sign of life for that long hangs. Slow ones answer within a few seconds."""
MOST_LINKS = 40  # on the way to one file, as in Linux


class HungError(OSError):
    """A file system does not answer."""

    def __init__(self, mount: Mount) -> None:
        super().__init__(ETIMEDOUT, f"{mount.point} does not answer", mount.point)


class Call(Future[T]):
    """A queued call. ``late``: its caller no longer waits, so it should end as soon as it can."""

    late = False

    def wait(self, seconds: float) -> bool:
        """Wait for the call up to a timeout; returns whether it is done."""
        self.late = not futures.wait((self,), max(0.0, seconds)).done
        return not self.late


class Mount:
    """A folder or file at ``point``, with one daemon thread that makes all calls to it."""

    def __init__(self, point: str) -> None:
        self.point = point
        self._waiting: deque[tuple[Call[Any], Callable[[], object]]] = deque()
        self._there = Condition()
        self._thread: Thread | None = None
        self._alive_at: float | None = None

    def start(self, work: Callable[[], T]) -> Call[T]:
        """Hand a call over, to be made behind those that were handed over before."""
        call = Call[T]()
        with self._there:
            self._waiting.append((call, work))
            if self._thread is None:
                self._thread = Thread(target=self._run, name=f"mount {self.point}", daemon=True)
                self._thread.start()
            self._there.notify()
        return call

    def call(self, work: Callable[[], T]) -> T:
        """Make a call and return what it returns. Raises HungError."""
        if not self.hangs:
            call = self.start(work)
            if call.wait(PATIENCE_SECONDS):
                return call.result()
            with self._there, suppress(ValueError):
                self._waiting.remove((call, work))
        raise HungError(self)

    def mark_alive(self) -> None:
        """Note that the file system answered: one call may make many requests."""
        self._alive_at = time.monotonic()

    @property
    def silent(self) -> float:
        """Seconds for which it has owed an answer; 0 if it owes none."""
        since = self._alive_at
        return 0.0 if since is None else time.monotonic() - since

    @property
    def hangs(self) -> bool:
        """Whether it does not answer."""
        return self.silent >= HUNG_SECONDS

    def _run(self) -> None:
        while True:
            with self._there:
                while not self._waiting:
                    self._there.wait()
                call, work = self._waiting.popleft()
                self._alive_at = time.monotonic()
            try:
                call.set_result(work())
            except BaseException as error:  # noqa: BLE001  (raised again for the caller)
                call.set_exception(error)
            del call, work  # what they hold is not kept until the next ones
            self._alive_at = None


class Resolution:
    """A path resolved step by step: ``real`` has no link, ``next`` comes next, all below ``root``."""

    def __init__(self, path: str, real: str = "/", root: str = "/") -> None:
        self.real = real
        self._root = root
        self._left: list[str] = []
        self._links = 0
        self._push(path)

    def _push(self, path: str) -> None:
        self._left += [part for part in reversed(path.split("/")) if part not in ("", ".")]

    @property
    def done(self) -> bool:
        """Whether all of it is resolved."""
        return not self._left

    @property
    def next(self) -> str:
        """The path of the next step."""
        part = self._left[-1]
        if part == "..":
            return self.real if self.real == self._root else os.path.dirname(self.real)  # noqa: PTH120
        return f"{self.real.rstrip('/')}/{part}"

    def step(self) -> None:
        """Make the next step; what is not there leads to itself. Raises OSError."""
        path = self.next
        try:
            target = os.readlink(path)  # noqa: PTH115  (the one call that must not follow anything)
        except OSError:  # not a link, or not there
            self.real = path
            self._left.pop()
            return
        self._links += 1
        if self._links > MOST_LINKS:
            raise OSError(ELOOP, os.strerror(ELOOP), path)
        self._left.pop()
        self._push(target)
        if target.startswith("/"):
            self.real = self._root
