"""Another machine, as far as the network goes: a network namespace with a cable to this one."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType

from typing_extensions import Self

from tests.real.tools import unavailable


class Machine:
    """A network of its own while the ``with`` block runs; it sees this machine at ``outside`` only.

    ``address`` is where this machine sees it. Takes root.
    """

    def __init__(self) -> None:
        if os.geteuid() != 0:
            unavailable("only root may make network namespaces")
        for program in ("ip", "nsenter"):
            if not shutil.which(program):
                unavailable(f"{program} is not on PATH")
        # Not the shared generator: tests that run at the same time would get the same.
        number = random.SystemRandom().randrange(1 << 14)
        network = f"10.213.{number >> 6}.{(number & 63) << 2}".rpartition(".")
        self.outside, self.address = (f"{network[0]}.{int(network[2]) + host}" for host in (1, 2))
        self._name, self._cable, self._end = (f"sw-{kind}{number}" for kind in ("box", "a", "b"))

    def command(self, *words: str) -> list[str]:
        """Return the command line of a program on that machine."""
        return ["nsenter", f"--net=/run/netns/{self._name}", *words]

    def cut(self) -> None:
        """Pull the cable."""
        # At its end: here the route would go with the cable, and another one lead somewhere.
        _ip("-n", self._name, "link", "set", self._end, "down")

    def mend(self) -> None:
        """Put it in again."""
        _ip("-n", self._name, "link", "set", self._end, "up")

    def __enter__(self) -> Self:
        _ip("netns", "add", self._name)
        try:
            _ip("link", "add", self._cable, "type", "veth", "peer", "name", self._end, "netns", self._name)
            _ip("addr", "add", f"{self.outside}/30", "dev", self._cable)
            _ip("link", "set", self._cable, "up")
            _ip("-n", self._name, "addr", "add", f"{self.address}/30", "dev", self._end)
            _ip("-n", self._name, "link", "set", "lo", "up")
            self.mend()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        _ip("netns", "del", self._name)  # and the cable with it


def _ip(*words: str) -> None:
    done: Sequence[str] = ("ip", *words)
    subprocess.run(done, check=True, capture_output=True, text=True)
