"""One client: bytes come in until a request is whole, then the answer goes out bit by bit."""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from exporter.http.message import BAD_REQUEST, FAULT, TOO_LONG, Answer, Head, Later, Pages

logger = logging.getLogger(__name__)

Made = TypeVar("Made")

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


class Connection:
    """A client on a socket that does not block.

    ``until`` is when it is to be dropped unless it gets on, ``active`` when it last did, in seconds of
    the steady clock. ``codes`` are those of the answers that were given since someone looked.
    ``most_body``: bytes that a request may bring.
    """

    def __init__(self, sock: socket.socket, client: str, pages: Pages, most_body: int) -> None:
        self.sock = sock
        self.active = time.monotonic()
        self.until = self.active + IDLE_SECONDS
        self.codes: list[str] = []
        self._client, self._pages, self._most_body = client, pages, most_body
        self._incoming = b""
        self._outgoing = memoryview(b"")
        self._head: Head | None = None
        self._size = 0
        self._later: Later | None = None
        self._last = False
        self._unheard: int | None = None
        """How much was not listened to; ``None`` while the client is."""

    @property
    def waits(self) -> bool:
        """Whether a request is still unanswered."""
        return self._later is not None

    def go_on(self) -> int:
        """Read or write what is possible, one answer at most. Returns the event to wait for, 0 at the end."""
        self.active = time.monotonic()
        if not self._outgoing and not self._has_next and not self._receive():
            return 0
        self._proceed()
        while self._outgoing:
            try:
                self._outgoing = self._outgoing[self.sock.send(self._outgoing) :]
            except BlockingIOError:
                return selectors.EVENT_WRITE
            if not self._outgoing:
                self._sent()
        if self._is_over():
            return 0
        # who asks for many pages at once takes turns with the others
        return selectors.EVENT_WRITE if self._has_next else selectors.EVENT_READ

    @property
    def _has_next(self) -> bool:
        """Whether at least the head of the next request has arrived."""
        return self._head is None and not self._last and b"\r\n\r\n" in self._incoming

    def _is_over(self) -> bool:
        return self._last and self._head is None and self._unheard is None

    def _receive(self) -> bool:
        if self.waits and len(self._incoming) > LONGEST_HEAD:
            return False
        try:
            block = self.sock.recv(BLOCK)
        except BlockingIOError:
            return True
        if self._unheard is not None:
            self._unheard += len(block)
            return bool(block) and self._unheard < MOST_UNHEARD
        if not self._incoming and self._head is None and not self.waits:
            self._within(REQUEST_SECONDS)
        self._incoming += block
        return bool(block)

    def _within(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds

    def _proceed(self) -> None:
        """Take the next request that is whole, once the last answer is out, and answer it."""
        if self._outgoing or self._unheard is not None:
            return
        if not self.waits and not (self._last and self._head is None):
            self._take()
        answer = _guarded(self._later) if self._later else None
        if answer is not None:
            self._later = None
            self._send(answer)

    def _take(self) -> None:
        if self._head is None:
            self._take_head()
        if self._head is not None and len(self._incoming) >= self._size:
            body, self._incoming = self._incoming[: self._size], self._incoming[self._size :]
            request = self._head.request(body, self._client)
            found = _guarded(lambda: self._pages(request))
            self._later = (lambda: found) if isinstance(found, Answer) else found
            self.until = float("inf")

    def _take_head(self) -> None:
        lines, end, rest = self._incoming.partition(b"\r\n\r\n")
        if len(lines) > LONGEST_HEAD:
            self._refuse(TOO_LONG)
        elif end:
            head = Head.parse(lines.decode("latin-1"))
            size = BAD_REQUEST if head is None else head.size(self._most_body)
            if head is None or isinstance(size, Answer):
                self._refuse(size if isinstance(size, Answer) else BAD_REQUEST)
            else:
                self._begin(head, size, rest)

    def _begin(self, head: Head, size: int, rest: bytes) -> None:
        self._head, self._size, self._incoming = head, size, rest
        self._last = head.last
        if len(rest) < size and "expect" in head.headers:
            self._outgoing = memoryview(CONTINUE)

    def _refuse(self, answer: Answer) -> None:
        """Answer, and listen no more: what follows is not a request."""
        self._last, self._incoming, self._unheard = True, b"", 0
        self._send(answer)

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
        self._within(ANSWER_SECONDS)

    def _sent(self) -> None:
        """All that was to be sent is out."""
        self._outgoing = memoryview(b"")  # an empty part of the answer would keep all of it in memory
        if self._unheard is not None:
            self.sock.shutdown(socket.SHUT_WR)
            self._within(LINGER_SECONDS)
        elif self._head is None:
            self._within(REQUEST_SECONDS if self._incoming else IDLE_SECONDS)


def _guarded(make: Callable[[], Made]) -> Made | Answer:
    try:
        return make()
    except Exception:  # one page's fault must not end the server
        logger.exception("A page could not be made.")
        return FAULT
