"""File systems, and calls to each in a thread of its own: one that hangs holds up no other.

A call to a dead file server (NFS, FUSE) never returns, and nothing can end it but SIGKILL. So no thread that
others wait for makes one. Which mount a path lies on is known from Linux's table of mounts, without a call to
any of them; links are followed step by step, each step in the thread of its mount.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from errno import ELOOP, ETIMEDOUT
from pathlib import Path
from threading import Condition, Thread
from typing import Any, TypeVar

T = TypeVar("T")
TABLE = Path("/proc/self/mountinfo")
PATIENCE_SECONDS = 2.0
"""How long a call is waited for: a disk that spins up takes longer than others may be kept waiting."""
HUNG_SECONDS = 10.0
"""A file system that gives no sign of life for that long hangs. Slow ones answer within a few seconds."""
MOST_LINKS = 40  # on the way to one file, as in Linux
_ESCAPED = re.compile(r"\\([0-7]{3})")


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
    """A file system, or part of one, at ``point``, with one daemon thread that makes all calls to it."""

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


class Mounts:
    """The mounts of this machine, by the kernel's table; without that table, one mount."""

    def __init__(self, table: Path = TABLE) -> None:
        self._table = table
        self._text = ""
        self._by_device: dict[str, Mount] = {}
        self._by_point: dict[str, Mount] = {"/": Mount("/")}
        self.look()

    def look(self) -> None:
        """Read what was mounted and unmounted. The table itself never hangs."""
        try:
            with open(self._table, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  (as fast as can be)
                text = file.read()
        except OSError:
            return
        if text == self._text:
            return
        self._text = text
        known, self._by_device = self._by_device, {}
        points: dict[str, Mount] = {}
        for line in text.splitlines():
            _, _, device, _, escaped, *_ = line.split()
            # Spaces and the like are octal numbers.
            point = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), escaped)
            mount = self._by_device.get(device) or known.get(device) or Mount(point)
            # One file system that is mounted twice hangs as one; a later mount hides an earlier one.
            self._by_device[device] = points[point] = mount
        self._by_point = points or self._by_point

    def __iter__(self) -> Iterator[Mount]:
        return iter(set(self._by_point.values()))

    def __contains__(self, mount: Mount) -> bool:
        return mount in self._by_point.values()

    @property
    def hung(self) -> list[Mount]:
        """Those that do not answer now."""
        return sorted((mount for mount in self if mount.hangs), key=lambda mount: mount.point)

    def begins_at(self, real: str) -> bool:
        """Whether something is mounted right at this path, which has no links."""
        return real in self._by_point

    def of(self, real: str) -> Mount:
        """The mount of an absolute path without links."""
        points = self._by_point
        while real not in points:
            above = os.path.dirname(real)  # noqa: PTH120  (asked for each step of each link)
            if above == real:
                return next(iter(points.values()))
            real = above
        return points[real]

    def resolve(self, path: str) -> tuple[Mount, str]:
        """The mount that a path leads to, and the same path without links. Raises HungError and OSError."""
        resolution = Resolution(os.path.join(os.getcwd(), path))  # noqa: PTH109, PTH118  (neither may look at the file)
        while not resolution.done:
            mount = self.of(resolution.next)
            mount.call(lambda mount=mount: self.resolve_on(mount, resolution))  # type: ignore[misc]
        return self.of(resolution.real), resolution.real

    def resolve_on(self, mount: Mount, resolution: Resolution) -> None:
        """Resolve a path further, as far as it lies on one mount; in its thread. Raises OSError."""
        while not resolution.done and self.of(resolution.next) is mount:
            resolution.step()

    def call(self, path: Path | str, work: Callable[[], T]) -> T:
        """Make a call about a path in the thread of the mount that the path leads to. Raises HungError."""
        mount, _ = self.resolve(str(path))
        return mount.call(work)


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
