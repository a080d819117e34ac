"""Finds out whether servers take connections. Nothing is asked of them: a connection is made and ended."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from contextlib import suppress

MOST = 128
"""Connections that are being made at a time: each is an open file."""

PATIENCE_SECONDS = 3.0


class Callers:
    """Calls addresses, many at a time."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._until: dict[socket.socket, float] = {}

    @property
    def room(self) -> int:
        """How many more may be called now."""
        return MOST - len(self._until)

    def call(self, name: str, host: str, port: int, now: float) -> None:
        """Begin to call a host (an IP address); ``name`` is what ``ended`` will call it.

        ``now`` in seconds of the steady clock. Where it is not possible, nothing is known of the server.
        """
        with suppress(OSError):  # no more files, or no IPv6
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            sock.settimeout(0)
            sock.connect_ex((host, port))  # whatever it says: a failure ends the call as well
            self._until[sock] = now + PATIENCE_SECONDS
            self._selector.register(sock, selectors.EVENT_WRITE, name)

    def ended(self, seconds: float, now: float) -> Iterator[tuple[str, bool]]:
        """Wait at most so long; the calls that ended, and whether each was taken."""
        for key, _ in self._selector.select(seconds):
            if isinstance(key.fileobj, socket.socket):
                yield key.data, _is_taken(key.fileobj)
                self._end(key.fileobj)
        for sock in [sock for sock, until in self._until.items() if until < now]:
            yield self._selector.get_key(sock).data, False
            self._end(sock)

    def close(self) -> None:
        """End all calls."""
        for sock in list(self._until):
            self._end(sock)
        self._selector.close()

    def _end(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        del self._until[sock]
        sock.close()


def _is_taken(sock: socket.socket) -> bool:
    """Is somebody else at the other end? A call to a free port of this machine may reach itself."""
    with suppress(OSError):
        return bool(sock.getpeername() != sock.getsockname())
    return False
