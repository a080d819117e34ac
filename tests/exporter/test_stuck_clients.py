"""A hundred clients that hang, each in its own way, leave the exporter responsive."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from exporter.message import Answer, Request
from exporter.routes import Routes
from exporter.runs import site
from exporter.runs.serving import Serving
from exporter.runs.watch import Settings, Watch
from exporter.server import MOST_CLIENTS, Server
from tests.exporter.lines import measured, verl_json
from tests.exporter.test_site import get

LARGE = b"x" * 4_000_000
WAYS = {
    "silent": b"",
    "half a head": b"GET /metrics HTTP/1.1\r\nHo",
    "half a body": b"POST /-/mark HTTP/1.1\r\nContent-Length: 900\r\n\r\n{",
    "never reads": b"GET /large HTTP/1.1\r\n\r\n",
    "refused and goes on": b"POST /-/mark HTTP/1.1\r\nContent-Length: 99999999\r\n\r\nxx",
}


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    watch = Watch(Settings((str(folder),)))
    watch.look()
    table = {**site.table(watch.metrics, watch.mark), "/large": {"GET": large}}
    server = Server(("127.0.0.1", 0), Routes(table), 1000)
    running = Serving(server)
    running.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        running.stop()


def large(_: Request) -> Answer:
    return Answer("200 OK", "text/plain", LARGE)


@pytest.mark.parametrize("clients", [100, 2 * MOST_CLIENTS])
@pytest.mark.parametrize("way", WAYS)
def test_stuck_clients_leave_the_pages_to_others(folder: Path, way: str, clients: int) -> None:
    (folder / "a.jsonl").write_text("".join(verl_json(step, measured(step)) for step in range(3)))
    with serving(folder) as url, ExitStack() as stuck:
        host, port = url.removeprefix("http://").split(":")
        for _ in range(clients):
            client = stuck.enter_context(socket.create_connection((host, int(port)), timeout=10))
            client.sendall(WAYS[way])
        for _ in range(3):
            assert b'rl_step{run="a"} 2' in get(f"{url}/metrics")[2]
        assert get(f"{url}/-/healthy")[0] == 200
