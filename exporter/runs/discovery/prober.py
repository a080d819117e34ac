"""Finds out whether servers take connections, and of new ones whether they have a page of metrics."""

from __future__ import annotations

import re
import selectors
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

MOST = 128
"""Calls that are under way at a time: each is an open file."""

PATIENCE_SECONDS = 3.0

BLOCK = 65536

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


class Outcome(NamedTuple):
    """How a call to ``name`` ended: was it taken, and the status of the page if it was asked for and came."""

    name: str
    taken: bool
    status: int | None = None


@dataclass(slots=True)
class _Call:
    """A call under way: ``request`` is what to ask for, ``taken`` says that someone is at the other end."""

    name: str
    until: float
    request: bytes
    taken: bool = False
    status: int | None = None

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.name, self.taken, self.status)


class Prober:
    """Calls addresses, many at a time; times in seconds of the steady clock."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._calls: dict[socket.socket, _Call] = {}

    @property
    def room(self) -> int:
        """How many more may be called now."""
        return MOST - len(self._calls)

    def call(self, name: str, host: str, port: int, path: str, now: float) -> None:
        """Begin to call a host (an IP address), and ask for the page at ``path`` if it is not empty.

        Where it is not possible, nothing is known of the server.
        """
        request = (
            f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode() if path else b""
        )
        with suppress(OSError):  # no more files, or no IPv6
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            sock.settimeout(0)
            sock.connect_ex((host, port))  # whatever it says: a failure ends the call as well
            self._watch(sock, _Call(name, now + PATIENCE_SECONDS, request))

    def ended(self, seconds: float, now: float) -> Iterator[Outcome]:
        """Wait at most so long; the calls that ended."""
        for key, _ in self._selector.select(seconds):
            if isinstance(key.fileobj, socket.socket):
                yield from self._go_on(key.fileobj, self._calls[key.fileobj])
        for sock in [sock for sock, call in self._calls.items() if call.until < now]:
            yield self._end(sock)

    def close(self) -> None:
        """End all calls."""
        for sock in list(self._calls):
            self._end(sock)
        self._selector.close()

    def _watch(self, sock: socket.socket, call: _Call) -> None:
        try:
            self._selector.register(sock, selectors.EVENT_WRITE)
        except OSError:  # the machine watches no more of them
            sock.close()
        else:
            self._calls[sock] = call

    def _go_on(self, sock: socket.socket, call: _Call) -> Iterator[Outcome]:
        if call.taken:
            goes_on = _read(sock, call)
        else:
            call.taken = _is_taken(sock)
            goes_on = call.taken and bool(call.request) and _sent(sock, call.request)
            if goes_on:
                self._selector.modify(sock, selectors.EVENT_READ)
        if not goes_on:
            yield self._end(sock)

    def _end(self, sock: socket.socket) -> Outcome:
        self._selector.unregister(sock)
        sock.close()
        return self._calls.pop(sock).outcome


def _is_taken(sock: socket.socket) -> bool:
    """Is someone else at the other end? A call to a free port of this machine may reach itself."""
    with suppress(OSError):
        return bool(sock.getpeername() != sock.getsockname())
    return False


def _sent(sock: socket.socket, request: bytes) -> bool:
    with suppress(OSError):
        return sock.send(request) == len(request)
    return False


def _read(sock: socket.socket, call: _Call) -> bool:
    """Is there more to come? All is read: a server complains in its log if a client leaves in the middle."""
    with suppress(OSError):
        block = sock.recv(BLOCK)
        found = None if call.status else _STATUS.match(block)
        call.status = int(found[1]) if found else call.status
        return bool(block)
    return False
