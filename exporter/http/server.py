"""The library's threading server, with limits: what one client may cost must not be what others miss."""

from __future__ import annotations

import errno
import logging
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from operator import attrgetter
from queue import SimpleQueue
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Lock, Thread
from typing import Any, TypeVar

from exporter.http.exposition import Metric, by_label, own
from exporter.http.message import BAD_REQUEST, FAULT, TOO_LONG, Answer, Head, Pages, Request

logger = logging.getLogger(__name__)
T = TypeVar("T")

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
MOST_CLIENTS = 80
MOST_HELD = 32 << 20
"""Bytes of half-sent bodies and of answers that were not read, of all clients together."""
TICK_SECONDS = 0.1
"""How long ``Server.stop`` waits at most for the thread that accepts connections."""


class _Connection(BaseRequestHandler):
    """A client, in a thread of its own.

    ``until`` is when the server drops it, ``heard`` when it last sent something, in seconds of the steady
    clock. It is ``busy`` while its answer is made, and ``waits`` while that waits for others; ``held`` are
    the bytes that are kept for it.
    """

    server: Server
    request: socket.socket

    def setup(self) -> None:
        """Join the others."""
        self.busy = self.waits = False
        self.held, self.heard = 0, time.monotonic()
        self.until = self.heard + IDLE_SECONDS
        self._incoming = bytearray()
        self.server.join(self)

    def handle(self) -> None:
        """Answer one request after the other."""
        with suppress(OSError):  # the client has gone, or was dropped
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self._answered():
                pass

    def finish(self) -> None:
        """Leave the others."""
        self.server.leave(self)

    def _answered(self) -> bool:
        """Answer the next request; returns whether another one may follow."""
        self.until = time.monotonic() + IDLE_SECONDS
        if not self._incoming and not self._received():
            return False
        self.until = time.monotonic() + REQUEST_SECONDS
        while b"\r\n\r\n" not in self._incoming and len(self._incoming) <= LONGEST_HEAD:
            if not self._received():
                return False
        lines, _, self._incoming = self._incoming.partition(b"\r\n\r\n")
        head = Head.parse(lines.decode("latin-1")) if len(lines) <= LONGEST_HEAD else None
        size = head.size(self.server.most_body) if head else BAD_REQUEST
        if head is None or isinstance(size, Answer):
            refusal = size if isinstance(size, Answer) else BAD_REQUEST
            self._refuse(TOO_LONG if len(lines) > LONGEST_HEAD else refusal)
            return False
        if len(self._incoming) < size and "expect" in head.headers:
            self.request.sendall(CONTINUE)
        while len(self._incoming) < size:
            if not self._received():
                return False
        body = bytes(self._incoming[:size])
        del self._incoming[:size]
        self.busy, self.until, self.held = True, inf, 0
        answer = self._made(head.request(body, self.client_address[0]))
        last = head.last or self.server.stopped
        self._send(answer, last=last, wants_body=head.method != "HEAD")
        return not last

    def _made(self, request: Request) -> Answer:
        try:
            found = self.server.alone(lambda: self.server.pages(request))
            if isinstance(found, Answer):
                return found
            self.waits = True
            return found()
        except Exception:  # one page's fault must not end the server
            logger.exception("A page could not be made.")
            return FAULT
        finally:
            self.waits = False

    def _received(self) -> bool:
        """Wait for more; returns whether there is some."""
        block = self.request.recv(BLOCK)
        self._incoming += block
        self.held, self.heard = len(self._incoming), time.monotonic()
        if self.held > BLOCK:
            self.server.make_room()
        return bool(block)

    def _refuse(self, answer: Answer) -> None:
        """Answer, and listen no more: what follows is not a request."""
        self._send(answer, last=True, wants_body=True)
        self.request.shutdown(socket.SHUT_WR)
        self.until, unheard = time.monotonic() + LINGER_SECONDS, 0
        while unheard < MOST_UNHEARD and (block := self.request.recv(BLOCK)):
            unheard += len(block)

    def _send(self, answer: Answer, *, last: bool, wants_body: bool) -> None:
        lines = (
            f"HTTP/1.1 {answer.status}",
            f"Content-Type: {answer.kind}",
            f"Content-Length: {len(answer.body)}",
            f"Connection: {'close' if last else 'keep-alive'}",
            *(f"{name}: {value}" for name, value in answer.headers),
        )
        head, body = "\r\n".join([*lines, "", ""]).encode("latin-1"), answer.body if wants_body else b""
        self.until, self.held = time.monotonic() + ANSWER_SECONDS, len(body)
        self.server.make_room(answer.code)
        for part in (head + body,) if len(body) < BLOCK else (head, body):  # a large one is not copied
            left = memoryview(part)
            while left:
                left = left[self.request.send(left) :]
                self.busy = False
        self.held = 0


class Server(ThreadingTCPServer):
    """Listens on ``address`` at once; ``start`` serves in threads.

    ``most_body``: bytes that a request may bring. Pages are made one after the other in one thread, as suits
    what they read, and since each thread that made one would keep memory for it. ``answered`` counts answers
    by status code, ``dropped`` clients that were dropped: ``slow``, or ``surplus`` when there were too many.

    Raises:
        OSError: the address is not available.
    """

    allow_reuse_address = daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_CLIENTS

    def __init__(self, address: tuple[str, int], pages: Pages, most_body: int = 0) -> None:
        self.pages, self.most_body = pages, most_body
        self.answered: dict[str, int] = {}
        self.dropped = {"slow": 0, "surplus": 0}
        self.stopped = False
        self._clients: set[_Connection] = set()
        self._changing = Lock()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        super().__init__(address, _Connection)
        self._thread = Thread(target=self.serve_forever, args=(TICK_SECONDS,), name="http", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        Thread(target=self._make, name="pages", daemon=True).start()
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self.server_address[1]
        return port

    def alone(self, call: Callable[[], T]) -> T:
        """Call a function in the thread that makes pages, after what was asked for before."""
        result: Future[T] = Future()

        def done() -> None:
            try:
                result.set_result(call())
            except Exception as problem:  # noqa: BLE001 - raised again, in the thread that asked
                result.set_exception(problem)

        self._calls.put(done)
        return result.result()

    def _make(self) -> None:
        for call in iter(self._calls.get, None):
            call()

    def join(self, client: _Connection) -> None:
        """Add a client."""
        with self._changing:
            self._clients.add(client)
        self.make_room()

    def make_room(self, answered: str = "") -> None:
        """Drop those silent longest while all are too many, or cost too much memory; count an answer."""
        with self._changing:
            if answered:
                self.answered[answered] = self.answered.get(answered, 0) + 1
            if len(self._clients) > MOST_CLIENTS:
                self._drop_longest(self._clients)
            while sum(each.held for each in self._clients) > MOST_HELD:
                self._drop_longest([each for each in self._clients if each.held])

    def leave(self, client: _Connection) -> None:
        """Forget a client."""
        with self._changing:
            self._clients.discard(client)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; without descriptors for it, a client makes room, if there is one."""
        try:
            return super().get_request()
        except OSError as problem:
            if problem.errno in (errno.EMFILE, errno.ENFILE):
                with self._changing:
                    self._drop_longest(self._clients)
                time.sleep(TICK_SECONDS)  # until its thread has ended; or others hold all descriptors
            raise

    def service_actions(self) -> None:
        """Drop the clients whose time is over."""
        now = time.monotonic()
        with self._changing:
            for client in [each for each in self._clients if each.until < now]:
                self._drop(client, "slow")

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        """Log why, such as that no thread could be started."""
        logger.error("A connection could not be served: %r.", sys.exc_info()[1])

    def waiting(self) -> list[int]:
        """Descriptors of the clients whose answer waits for others."""
        with self._changing:
            return [client.request.fileno() for client in self._clients if client.waits]

    def samples(self) -> Iterator[Metric]:
        """Its counters."""
        yield own("http_requests_total", "Requests by status code.", by_label("code", dict(self.answered)))
        yield own("http_clients_dropped_total", "Clients dropped.", by_label("reason", self.dropped))

    def stop(self, *, finish: bool = False) -> None:
        """Release the port and drop all clients; ``finish`` waits for the answers that are being made."""
        self.stopped = True
        if self._thread.is_alive():
            self.shutdown()
        self.server_close()
        while finish and any(client.busy for client in list(self._clients)):
            time.sleep(TICK_SECONDS / 5)
            self.service_actions()
        with self._changing:
            for client in list(self._clients):
                self._drop(client)
        self._calls.put(None)

    def _drop_longest(self, clients: Collection[_Connection]) -> None:
        free = [each for each in clients if not each.waits]
        if free:
            self._drop(min(free, key=attrgetter("heard")), "surplus")

    def _drop(self, client: _Connection, reason: str = "") -> None:
        """Have a client's thread end; ``reason`` is what to count it for, where it is our decision."""
        if reason:
            self.dropped[reason] += 1
        self._clients.discard(client)
        with suppress(OSError):  # it has gone already
            client.request.shutdown(socket.SHUT_RDWR)
