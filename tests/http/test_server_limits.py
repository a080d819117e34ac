"""The small HTTP server with more clients than it has room, memory or descriptors for."""

from __future__ import annotations

import os
import resource
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from exporter.http import server as server_module
from exporter.http.message import Answer, Request
from exporter.http.server import Server
from tests.http.test_server import get, page, serving

ASKED = b"GET /metrics HTTP/1.0\r\n\r\n"

Knock = Callable[[], socket.socket]


@pytest.fixture(name="server")
def _server() -> Iterator[Server]:
    """Not served yet."""
    server = Server(("127.0.0.1", 0), page)
    yield server
    server.close()


@pytest.fixture(name="knock")
def _knock(server: Server) -> Iterator[Knock]:
    """Makes a client of it."""
    with ExitStack() as clients:
        yield lambda: clients.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """This process can open nothing more."""
    first_free = os.dup(0)
    os.close(first_free)
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))


def test_too_many_clients_cost_the_one_that_is_silent_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_CLIENTS", 3)
    with serving() as port:
        clients = []
        for _ in range(4):
            clients.append(socket.create_connection(("127.0.0.1", port), timeout=10))
            time.sleep(0.05)
        assert clients[0].recv(1) == b""
        clients[3].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert clients[3].recv(12) == b"HTTP/1.1 200"
        for client in clients:
            client.close()


def test_who_knocks_while_a_full_house_is_heard_is_let_in(
    monkeypatch: pytest.MonkeyPatch, server: Server, knock: Knock
) -> None:
    monkeypatch.setattr(server_module, "MOST_CLIENTS", 3)
    inside = [knock() for _ in range(3)]
    server.serve(0.1)
    newcomer = knock()
    for each in inside:
        each.sendall(b"GET")
    server.serve(0.1)
    newcomer.sendall(ASKED)
    server.serve(0.1)
    assert newcomer.recv(12) == b"HTTP/1.1 200"


def test_without_descriptors_the_one_silent_longest_makes_room(server: Server, knock: Knock) -> None:
    silent = knock()
    server.serve(0.1)
    newcomer = knock()
    newcomer.sendall(ASKED)
    with no_more_descriptors():
        for _ in range(3):
            server.serve(0.1)
    assert newcomer.recv(12) == b"HTTP/1.1 200"
    assert silent.recv(1) == b""


def test_where_no_client_can_make_room_the_server_rests(server: Server, knock: Knock) -> None:
    knock()
    rounds, end = 0, time.monotonic() + 0.5
    with no_more_descriptors():
        while time.monotonic() < end:
            server.serve(0.1)
            rounds += 1
    assert rounds <= 0.5 / server_module.OUT_OF_DESCRIPTORS_SECONDS + 1


@pytest.mark.slow
def test_who_was_answered_costs_no_memory() -> None:
    size, clients = 1_000_000, 20

    def large(_: Request) -> Answer:
        return Answer("200 OK", "text/plain", bytes(size))

    with ExitStack() as open_now:
        port = open_now.enter_context(serving(large))
        tracemalloc.start()
        open_now.callback(tracemalloc.stop)
        for _ in range(clients):
            client = open_now.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            left = size
            while left > 0:
                left -= len(client.recv(65536))
        get(port, "/")
        assert tracemalloc.get_traced_memory()[0] < 5 * size
