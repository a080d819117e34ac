"""Machines of a cluster, as network namespaces with a switch between them."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from tests.real.tools import unavailable

_NEW_NETWORK = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_NUMBERS = itertools.count()


class Network:
    """Namespaces with these names, which reach each other while a ``with`` block runs, and nothing else."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._prefix = f"stepwatch-{os.getpid()}-{next(_NUMBERS)}"

    def address(self, name: str) -> str:
        return f"10.99.0.{self.names.index(name) + 1}"

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Sockets that this thread opens, and programs that it starts, are on this machine."""
        with Path("/proc/thread-self/ns/net").open() as before:
            with Path("/run/netns", self._namespace(name)).open() as there:
                _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def cut(self, name: str) -> None:
        """Pull the machine's cable out."""
        self._port(name, "down")

    def mend(self, name: str) -> None:
        self._port(name, "up")

    def slow(self, name: str, rate: str) -> None:
        """Let the machine send no more than so much, such as ``64kbit`` a second."""
        _do(
            "tc",
            "-n",
            self._namespace(name),
            "qdisc",
            "replace",
            "dev",
            "eth0",
            "root",
            "tbf",
            *_bucket(rate),
        )

    def fast(self, name: str) -> None:
        _do("tc", "-n", self._namespace(name), "qdisc", "del", "dev", "eth0", "root")

    def __enter__(self) -> Self:
        missing = [program for program in ("ip", "tc") if not shutil.which(program)]
        if os.geteuid() or missing:
            unavailable(f"network namespaces need root, ip and tc; not on PATH: {missing}")
        switch = self._namespace("switch")
        for name in ("switch", *self.names):
            _do("ip", "netns", "add", self._namespace(name))
        _do("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _do("ip", "-n", switch, "link", "set", "bridge", "up")
        for name in self.names:
            space = self._namespace(name)
            ends = ("name", "eth0", "netns", space, "type", "veth", "peer", "name", name, "netns", switch)
            _do("ip", "link", "add", *ends)
            _do("ip", "-n", switch, "link", "set", name, "master", "bridge")
            _do("ip", "-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _do("ip", "-n", space, "link", "set", device, "up")
            self.mend(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in ("switch", *self.names):
            subprocess.run(["ip", "netns", "delete", self._namespace(name)], check=False)

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _port(self, name: str, state: str) -> None:
        _do("ip", "-n", self._namespace("switch"), "link", "set", name, state)


def _bucket(rate: str) -> tuple[str, ...]:
    return ("rate", rate, "burst", "8kb", "latency", "2s")


def _enter(handle: int) -> None:
    if _LIBC.setns(handle, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def _do(*words: str) -> None:
    subprocess.run(words, check=True)
