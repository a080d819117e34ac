"""A small HTTP server in one thread: a slow client holds up no one, and the library's weighs 10 MB."""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Iterator
from operator import attrgetter
from threading import Event, Thread

from exporter.http.connection import Connection
from exporter.http.exposition import Metric, by_label, own
from exporter.http.message import Pages

MOST_CLIENTS = 256

TICK_SECONDS = 0.1
"""How long ``ServerThread.stop`` waits at most."""

OUT_OF_DESCRIPTORS_SECONDS = 0.1
"""A pause, since others than clients hold all descriptors."""


class Server:
    """Listens on ``address`` at once; call ``serve`` again and again.

    ``most_body``: bytes that a request may bring. ``answered`` counts answers by status code,
    ``dropped`` clients that were dropped: ``slow``, or ``surplus`` when there were too many.

    Raises:
        OSError: the address is not available.
    """

    def __init__(self, address: tuple[str, int], pages: Pages, most_body: int = 0) -> None:
        self.answered: dict[str, int] = {}
        self.dropped = {"slow": 0, "surplus": 0}
        self._pages, self._most_body = pages, most_body
        self._clients: dict[socket.socket, Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(address, backlog=MOST_CLIENTS)
        self._listener.settimeout(0)
        self._selector.register(self._listener, selectors.EVENT_READ)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    def serve(self, seconds: float) -> None:
        """Answer what comes within that time; returns as soon as something was done."""
        ready: list[Connection | None] = [key.data for key, _ in self._selector.select(seconds)]
        for heard in filter(None, ready):
            self._attend(heard)
        for client in [client for client in self._clients.values() if client.waits]:
            self._attend(client)
        if None in ready:  # the listener
            # Last: beside clients heard after them, pending connections would seem silent longest.
            self._accept()
        now = time.monotonic()
        for client in [client for client in self._clients.values() if client.until < now]:
            self._drop(client, "slow")
        surplus = max(0, len(self._clients) - MOST_CLIENTS)
        for client in sorted(self._clients.values(), key=attrgetter("active"))[:surplus]:
            self._drop(client, "surplus")

    def samples(self) -> Iterator[Metric]:
        """Its counters."""
        yield own("http_requests_total", "Requests by status code.", by_label("code", self.answered))
        yield own("http_clients_dropped_total", "Clients dropped.", by_label("reason", self.dropped))

    def close(self) -> None:
        """Release the port and drop all clients."""
        for client in list(self._clients.values()):
            self._drop(client)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        """Accept all pending connections: one in each round, the last would wait for as many rounds."""
        known = len(self._clients)
        try:
            for _ in range(MOST_CLIENTS):
                sock, (address, *_) = self._listener.accept()
                client = Connection(sock, address, self._pages, self._most_body)
                try:
                    sock.settimeout(0)
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._selector.register(sock, selectors.EVENT_READ, client)
                except OSError:  # it went away again, or no more can be watched
                    sock.close()
                else:
                    self._clients[sock] = client
        except OSError as problem:  # there are no more, or descriptors have run out
            if problem.errno in (errno.EMFILE, errno.ENFILE) and len(self._clients) == known:
                # The pending connection is reported in every round until there is one.
                longest = min(self._clients.values(), key=attrgetter("active"), default=None)
                if longest:
                    self._drop(longest, "surplus")
                else:
                    time.sleep(OUT_OF_DESCRIPTORS_SECONDS)

    def _attend(self, client: Connection) -> None:
        try:
            waits_for = client.go_on()
        except OSError:
            waits_for = 0
        for code in client.codes:
            self.answered[code] = self.answered.get(code, 0) + 1
        client.codes.clear()
        if waits_for:
            self._selector.modify(client.sock, waits_for, client)
        else:
            self._drop(client)

    def _drop(self, client: Connection, reason: str = "") -> None:
        """Close a connection; ``reason`` is what to count it for, where it is our decision."""
        if reason:
            self.dropped[reason] += 1
        self._selector.unregister(client.sock)
        del self._clients[client.sock]
        client.sock.close()


class ServerThread:
    """Serves in a thread of its own, so that pages are served while logs are read."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = Event()
        self._thread = Thread(target=self._serve, name="http", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Serve no more; the port is free afterwards."""
        self._stop.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._server.serve(TICK_SECONDS)
        self._server.close()
