"""A small HTTP server in one thread: a slow client holds up no one, and the library's weighs 10 MB."""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from operator import attrgetter
from threading import Event, Thread
from typing import TypeVar

from exporter.http.exposition import Metric, by_label, own
from exporter.http.message import BAD_REQUEST, FAULT, TOO_LONG, Answer, Head, Later, Pages

logger = logging.getLogger(__name__)

_Made = TypeVar("_Made")

LONGEST_HEAD = 16384
BLOCK = 65536
IDLE_SECONDS = 60.0
REQUEST_SECONDS = 15.0
"""From a request's first byte to its last: a client that sends a byte now and then must not stay forever."""
ANSWER_SECONDS = 60.0
LINGER_SECONDS = 2.0
MOST_UNHEARD = 1 << 20
"""What a client whose body was refused may still send: without it, the client would miss the answer."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Connection:
    """A client on a socket that does not block.

    ``until`` is when it is to be dropped unless it gets on, ``active`` when it last did, in seconds of
    the steady clock. ``later`` is asked for the answer that is still to come. ``codes`` are those of the
    answers that were given since someone looked. ``most_body``: bytes that a request may bring.
    """

    def __init__(self, sock: socket.socket, client: str, pages: Pages, most_body: int) -> None:
        self.sock = sock
        self.active = time.monotonic()
        self.until = self.active + IDLE_SECONDS
        self.codes: list[str] = []
        self.later: Later | None = None
        self._client, self._pages, self._most_body = client, pages, most_body
        self._incoming, self._outgoing = b"", memoryview(b"")
        self._head: Head | None = None
        self._size = 0
        self._last = False
        # How much was not listened to; None while the client is.
        self._unheard: int | None = None

    def go_on(self) -> int:
        """Read or write what is possible, one answer at most. Returns the event to wait for, 0 at the end."""
        self.active = time.monotonic()
        if not self._outgoing and not self._has_next and not self._receive():
            return 0
        if not self._outgoing and self._unheard is None:  # the last answer is out
            if not self.later and not (self._last and self._head is None):
                self._take()
            answer = _guarded(self.later) if self.later else None
            if answer is not None:
                self.later = None
                self._send(answer)
        if not self._flushed():
            return selectors.EVENT_WRITE
        if self._last and self._head is None and self._unheard is None:
            return 0
        # who asks for many pages at once takes turns with the others
        return selectors.EVENT_WRITE if self._has_next else selectors.EVENT_READ

    def _flushed(self) -> bool:
        """Send what the client takes; whether that is all."""
        while self._outgoing:
            try:
                self._outgoing = self._outgoing[self.sock.send(self._outgoing) :]
            except BlockingIOError:
                return False
            if not self._outgoing:  # all is out
                self._outgoing = memoryview(b"")  # an empty part of the answer would keep it in memory
                if self._unheard is not None:
                    self.sock.shutdown(socket.SHUT_WR)
                    self.until = time.monotonic() + LINGER_SECONDS
                elif self._head is None:
                    self.until = time.monotonic() + (REQUEST_SECONDS if self._incoming else IDLE_SECONDS)
        return True

    @property
    def _has_next(self) -> bool:
        """Whether at least the head of the next request has arrived."""
        return self._head is None and not self._last and b"\r\n\r\n" in self._incoming

    def _receive(self) -> bool:
        if self.later and len(self._incoming) > LONGEST_HEAD:
            return False
        try:
            block = self.sock.recv(BLOCK)
        except BlockingIOError:
            return True
        if self._unheard is not None:
            self._unheard += len(block)
            return bool(block) and self._unheard < MOST_UNHEARD
        if not self._incoming and self._head is None and not self.later:
            self.until = time.monotonic() + REQUEST_SECONDS
        self._incoming += block
        return bool(block)

    def _take(self) -> None:
        """Take the next request once it is whole, and ask for its answer; or refuse it."""
        if self._head is None:
            lines, end, rest = self._incoming.partition(b"\r\n\r\n")
            if not end and len(lines) <= LONGEST_HEAD:
                return
            head = Head.parse(lines.decode("latin-1")) if len(lines) <= LONGEST_HEAD else None
            size = head.size(self._most_body) if head else BAD_REQUEST
            if head is None or isinstance(size, Answer):
                # Listen no more: what follows is not a request.
                self._last, self._incoming, self._unheard = True, b"", 0
                refusal = size if isinstance(size, Answer) else BAD_REQUEST
                self._send(TOO_LONG if len(lines) > LONGEST_HEAD else refusal)
                return
            self._head, self._size, self._incoming, self._last = head, size, rest, head.last
            if len(rest) < size and "expect" in head.headers:
                self._outgoing = memoryview(CONTINUE)
        if len(self._incoming) >= self._size:
            body, self._incoming = self._incoming[: self._size], self._incoming[self._size :]
            request = self._head.request(body, self._client)
            found = _guarded(lambda: self._pages(request))
            self.later = (lambda: found) if isinstance(found, Answer) else found
            self.until = float("inf")

    def _send(self, answer: Answer) -> None:
        wants_body = self._head is None or self._head.method != "HEAD"
        lines = (
            f"HTTP/1.1 {answer.status}",
            f"Content-Type: {answer.kind}",
            f"Content-Length: {len(answer.body)}",
            f"Connection: {'close' if self._last else 'keep-alive'}",
            *(f"{name}: {value}" for name, value in answer.headers),
        )
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._outgoing = memoryview(head + (answer.body if wants_body else b""))
        self._head, self._size = None, 0
        self.codes.append(answer.code)
        self.until = time.monotonic() + ANSWER_SECONDS


def _guarded(make: Callable[[], _Made]) -> _Made | Answer:
    try:
        return make()
    except Exception:  # one page's fault must not end the server
        logger.exception("A page could not be made.")
        return FAULT


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
        self._clients: dict[socket.socket, _Connection] = {}
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
        ready: list[_Connection | None] = [key.data for key, _ in self._selector.select(seconds)]
        for heard in filter(None, ready):
            self._attend(heard)
        for client in [client for client in self._clients.values() if client.later]:
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

    def waiting(self) -> list[int]:
        """Descriptors of the clients whose answer is still to come."""
        return [sock.fileno() for sock, client in self._clients.items() if client.later]

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
                client = _Connection(sock, address, self._pages, self._most_body)
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

    def _attend(self, client: _Connection) -> None:
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

    def _drop(self, client: _Connection, reason: str = "") -> None:
        """Close a connection; ``reason`` is what to count it for, where it is our decision."""
        if reason:
            self.dropped[reason] += 1
        self._selector.unregister(client.sock)
        del self._clients[client.sock]
        client.sock.close()


class ServerThread:
    """Serves in a thread of its own, so that pages are served while logs are read."""

    def __init__(self, server: Server) -> None:
        self._server, self._stop = server, Event()
        self._thread = Thread(target=self._serve, name="http", daemon=True)
        self.start = self._thread.start

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._server.serve(TICK_SECONDS)
        self._server.close()

    def stop(self) -> None:
        """Serve no more; the port is free afterwards."""
        self._stop.set()
        self._thread.join()
