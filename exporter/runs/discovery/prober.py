"""Finds out whether servers take connections, and of new ones whether they have a page of metrics.

Times are in seconds of the steady clock.
"""

from __future__ import annotations

import random
import re
import selectors
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

MOST = 128
"""Probes that are under way at a time: each is an open file."""

TIMEOUT_SECONDS = 3.0

PROBE_SECONDS = 15.0
"""Between two probes of one address; a quarter more or less, so that they do not stay together."""

BLOCK = 65536

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


class Outcome(NamedTuple):
    """How a probe of ``name`` ended: whether the server took the connection, and the status of its page.

    ``status`` is ``None`` where no page was asked for, or none came.
    """

    name: str
    taken: bool
    status: int | None = None


class Schedule:
    """The order of probes."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, str]] = []
        self._known: set[str] = set()

    def set_addresses(self, addresses: set[str], now: float) -> None:
        """Have these probed from now on, and no others."""
        self._queue = [entry for entry in self._queue if entry[1] in addresses]
        self._queue += [(now, address) for address in addresses - self._known]
        heapify(self._queue)
        self._known = set(addresses)

    def due(self, now: float, most: int) -> Iterator[str]:
        """Yield the addresses to probe now, the longest waiting first."""
        while most > 0 and self._queue and self._queue[0][0] <= now:
            _, address = heappop(self._queue)
            heappush(self._queue, (now + PROBE_SECONDS * random.uniform(0.75, 1.25), address))  # noqa: S311
            most -= 1
            yield address


@dataclass(slots=True, eq=False)
class Probe:
    """A probe under way: ``request`` is what to ask for, ``taken`` says that someone is at the other end."""

    name: str
    sock: socket.socket
    until: float
    request: bytes
    taken: bool = False
    status: int | None = None

    def goes_on(self) -> bool:
        """Take the next step; returns whether there is another one."""
        with suppress(OSError):
            if not self.taken:
                # A connection to a free port of this machine may reach itself.
                self.taken = self.sock.getpeername() != self.sock.getsockname()
                return self.taken and bool(self.request) and self.sock.send(self.request) == len(self.request)
            # All is read: a server complains in its log if a client leaves in the middle.
            block = self.sock.recv(BLOCK)
            if self.status is None and (found := _STATUS.match(block)):
                self.status = int(found[1])
            return bool(block)
        return False


class Prober:
    """Probes addresses, many at a time."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._probes: set[Probe] = set()

    @property
    def room(self) -> int:
        """How many more may be probed now."""
        return MOST - len(self._probes)

    def start(self, name: str, host: str, port: int, path: str, now: float) -> None:
        """Begin to connect to a host (an IP address), and ask for the page at ``path`` if it is not empty.

        Where it is not possible, nothing is known of the server.
        """
        request = f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n" if path else ""
        with suppress(OSError):  # no more files, or no IPv6
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            sock.settimeout(0)
            sock.connect_ex((host, port))  # whatever it says: a failure ends the probe as well
            probe = Probe(name, sock, now + TIMEOUT_SECONDS, request.encode())
            try:
                self._selector.register(sock, selectors.EVENT_WRITE, probe)
            except OSError:  # the machine watches no more of them
                sock.close()
            else:
                self._probes.add(probe)

    def ended(self, seconds: float, now: float) -> Iterator[Outcome]:
        """Wait up to a timeout, and yield the results of the probes that ended."""
        for key, _ in self._selector.select(seconds):
            if key.data.goes_on():
                self._selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
            else:
                yield self._end(key.data)
        for probe in [probe for probe in self._probes if probe.until < now]:
            yield self._end(probe)

    def close(self) -> None:
        """End all probes."""
        for probe in list(self._probes):
            self._end(probe)
        self._selector.close()

    def _end(self, probe: Probe) -> Outcome:
        self._probes.remove(probe)
        self._selector.unregister(probe.sock)
        probe.sock.close()
        return Outcome(probe.name, probe.taken, probe.status)
