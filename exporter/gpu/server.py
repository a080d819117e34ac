"""A small HTTP server in one thread: a slow client holds up nobody, and the library's weighs 10 MB."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

LONGEST_REQUEST = 16384
MOST_CLIENTS = 256
IDLE_SECONDS = 60.0
BLOCK = 65536


class Request(NamedTuple):
    """What a client asks for; HEAD comes as GET.

    ``query`` is what follows the question mark, ``origin`` the site whose page sent it, if a browser did,
    and ``sends`` whether a body comes with it.
    """

    method: str
    path: str
    query: str
    origin: str
    sends: bool


class Answer(NamedTuple):
    """What is sent back; ``allow`` are the methods that would have been right."""

    status: str
    kind: str
    body: bytes
    allow: str = ""


Later = Callable[[], Answer | None]
"""Asked again and again until there is an answer."""

Pages = Callable[[Request], Answer | Later]
"""Gives the answer to a request, or says how to come by it."""

BAD_REQUEST = Answer("400 Bad Request", "text/plain", b"this is no HTTP request\n")
TOO_LONG = Answer("431 Request Header Fields Too Large", "text/plain", b"the request is too long\n")


class Server:
    """Listens on ``address`` at once; call ``serve`` again and again.

    Raises:
        OSError: the address cannot be had.
    """

    def __init__(self, address: tuple[str, int], pages: Pages) -> None:
        self._pages = pages
        self._clients: dict[socket.socket, _Client] = {}
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
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._attend(self._clients[key.fileobj])  # type: ignore[index]  # only sockets are registered
        for client in [client for client in self._clients.values() if client.waits]:
            self._attend(client)
        self._drop_idle()

    def close(self) -> None:
        """Let go of the port and of all clients."""
        for client in list(self._clients.values()):
            self._drop(client)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it went away again, or there are no more descriptors
            sock, _ = self._listener.accept()
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients[sock] = _Client(sock, self._pages)
            self._selector.register(sock, selectors.EVENT_READ)

    def _attend(self, client: _Client) -> None:
        try:
            waits_for = client.go_on()
        except OSError:
            waits_for = 0
        if waits_for:
            self._selector.modify(client.sock, waits_for)
        else:
            self._drop(client)

    def _drop_idle(self) -> None:
        """Those who say nothing for long, and when there are too many, those silent longest."""
        order = sorted(self._clients.values(), key=lambda client: client.active)
        oldest = time.monotonic() - IDLE_SECONDS
        surplus = len(order) - MOST_CLIENTS
        for place, client in enumerate(order):
            if client.active < oldest or place < surplus:
                self._drop(client)

    def _drop(self, client: _Client) -> None:
        del self._clients[client.sock]
        self._selector.unregister(client.sock)
        client.sock.close()


class _Client:
    """A connection: bytes come in until a request is whole, then the answer goes out bit by bit."""

    def __init__(self, sock: socket.socket, pages: Pages) -> None:
        self.sock = sock
        self.active = time.monotonic()
        self._pages = pages
        self._incoming = b""
        self._outgoing = memoryview(b"")
        self._later: Later | None = None
        self._wants_body = True
        self._last = False

    @property
    def waits(self) -> bool:
        """Is there no answer yet to what was asked?"""
        return self._later is not None

    def go_on(self) -> int:
        """Read or write what is possible. Returns the event to wait for, 0 when it is over."""
        self.active = time.monotonic()
        if not self._outgoing and not self._receive():
            return 0
        self._answer()
        while self._outgoing:
            try:
                self._outgoing = self._outgoing[self.sock.send(self._outgoing) :]
            except BlockingIOError:
                return selectors.EVENT_WRITE
            self._answer()
        return 0 if self._last and not self.waits else selectors.EVENT_READ

    def _receive(self) -> bool:
        if self.waits and len(self._incoming) > LONGEST_REQUEST:
            return False
        try:
            block = self.sock.recv(BLOCK)
        except BlockingIOError:
            return True
        self._incoming += block
        return bool(block)

    def _answer(self) -> None:
        """Answer the next request that is whole, once the last answer is out."""
        if self._outgoing:
            return
        if not self.waits and not self._last:
            self._take()
        answer = self._later() if self._later else None
        if answer is not None:
            self._later = None
            self._outgoing = memoryview(self._text(answer))

    def _take(self) -> None:
        head, end, rest = self._incoming.partition(b"\r\n\r\n")
        if end:
            self._incoming = rest
            found = self._found(head.decode("latin-1"))
            self._later = (lambda: found) if isinstance(found, Answer) else found
        elif len(self._incoming) > LONGEST_REQUEST:
            self._last = True
            self._later = lambda: TOO_LONG

    def _found(self, head: str) -> Answer | Later:
        line, *fields = head.split("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._last = True
            return BAD_REQUEST
        method, target, version = words
        told = {
            name.lower(): value.strip().lower()
            for name, _, value in (field.partition(":") for field in fields)
        }
        sends = told.get("content-length", "0") != "0" or "transfer-encoding" in told
        alive = told.get("connection", "keep-alive" if version == "HTTP/1.1" else "close") == "keep-alive"
        self._last = sends or not alive
        self._wants_body = method != "HEAD"
        path, _, query = target.partition("?")
        asked = "GET" if method == "HEAD" else method
        return self._pages(Request(asked, path, query, told.get("origin", ""), sends))

    def _text(self, answer: Answer) -> bytes:
        head = (
            f"HTTP/1.1 {answer.status}",
            f"Content-Type: {answer.kind}",
            f"Content-Length: {len(answer.body)}",
            f"Connection: {'close' if self._last else 'keep-alive'}",
            *([f"Allow: {answer.allow}"] if answer.allow else []),
        )
        return "\r\n".join([*head, "", ""]).encode() + (answer.body if self._wants_body else b"")
