"""The small HTTP server with more clients than it has room, memory or descriptors for."""

from __future__ import annotations

import os
import resource
import socket
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from exporter.http import server as server_module
from exporter.http.message import Answer, Request
from tests.http.test_server import get, serving

ASKED = b"GET /metrics HTTP/1.0\r\n\r\n"


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


def test_clients_that_cost_too_much_memory_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_HELD", 30_000_000)
    with serving() as port, ExitStack() as stuck:
        clients = []
        for _ in range(2):  # each is owed 20 MB, of which the kernel holds some
            clients.append(stuck.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)))
            clients[-1].sendall(b"GET /large HTTP/1.1\r\n\r\n")
            assert clients[-1].recv(1)
            time.sleep(0.05)
        assert len(b"".join(iter(lambda: clients[0].recv(1 << 20), b""))) < 20_000_000
        assert get(port, "/metrics")[0] == 200


def test_without_descriptors_the_one_silent_longest_makes_room() -> None:
    with serving() as port, socket.create_connection(("127.0.0.1", port), timeout=10) as silent:
        time.sleep(0.3)
        newcomer = socket.socket()
        newcomer.settimeout(10)
        with no_more_descriptors():
            newcomer.connect(("127.0.0.1", port))
            newcomer.sendall(ASKED)
            assert silent.recv(1) == b""
            assert newcomer.recv(12) == b"HTTP/1.1 200"
        newcomer.close()


def test_where_no_client_can_make_room_the_server_rests() -> None:
    with serving() as port, socket.socket() as newcomer:
        with no_more_descriptors():
            newcomer.connect(("127.0.0.1", port))
            before, began = time.process_time(), time.monotonic()
            time.sleep(1)
            assert time.process_time() - before < 0.3 * (time.monotonic() - began)
        newcomer.settimeout(10)
        newcomer.sendall(ASKED)
        assert newcomer.recv(12) == b"HTTP/1.1 200"


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
