"""Clients that hang, each in its own way, leave the exporter responsive."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from exporter.http.server import MOST_CLIENTS
from exporter.runs import cli
from exporter.runs.app import App
from exporter.runs.overview.panels import DEFAULT
from tests.real.server import free_port
from tests.real.waiting import eventually
from tests.runs.lines import measured, verl_json
from tests.runs.scrape import Scrape
from tests.runs.serve.test_site import get

WAYS = {
    "silent": b"",
    "half a head": b"GET /metrics HTTP/1.1\r\nHo",
    "half a body": b"POST /api/v1/prometheus/targets HTTP/1.1\r\nContent-Length: 900\r\n\r\n{",
    "never reads": 600 * b"GET /metrics HTTP/1.1\r\n\r\n",
    "refused and goes on": b"POST /-/mark HTTP/1.1\r\nContent-Length: 99999999\r\n\r\nxx",
}


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """The whole exporter; gives its port."""
    port = free_port()
    options = cli.command_line([f"--path={folder}", f"--port={port}", "--listen=127.0.0.1"]).options()
    service = App(options, DEFAULT, lambda: False)
    service.start()
    service.look()
    try:
        yield port
    finally:
        service.stop()


def client_of(port: int) -> socket.socket:
    """One that the kernel holds hardly anything for, so that it is the exporter that must."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    client.settimeout(10)
    client.connect(("127.0.0.1", port))
    return client


@pytest.mark.parametrize("clients", [100, 2 * MOST_CLIENTS])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_stuck_clients_leave_the_pages_to_others(folder: Path, way: str, clients: int) -> None:
    (folder / "a.jsonl").write_text("".join(verl_json(step, measured(step)) for step in range(3)))
    with serving(folder) as port, ExitStack() as stuck:
        url = f"http://127.0.0.1:{port}"
        for _ in range(clients):
            stuck.enter_context(client_of(port)).sendall(WAYS[way])
        assert b'rl_step{run="a"} 2' in get(f"{url}/metrics")[2]
        assert [run["run"] for run in json.loads(get(f"{url}/api/v1/runs")[2])["runs"]] == ["a"]
        assert b"./run/a" in get(f"{url}/")[2]
        assert get(f"{url}/-/healthy")[0] == 200
        eventually(lambda: get(f"{url}/sd/rollout")[:2] == (200, "application/json"))


@pytest.mark.slow
def test_who_never_reads_is_answered_no_further_than_the_kernel_holds(folder: Path) -> None:
    (folder / "a.jsonl").write_text(verl_json(1, measured(1)))
    with serving(folder) as port, ExitStack() as stuck:
        for _ in range(5):
            stuck.enter_context(client_of(port)).sendall(WAYS["never reads"])
        seen: list[float] = [0, 0]
        while seen[-1] - seen[-2] != 1:  # the look itself
            time.sleep(0.3)
            text = get(f"http://127.0.0.1:{port}/metrics")[2]
            seen.append(Scrape(text).value("stepwatch_http_requests_total", code="200") or 0)
        assert 5 < seen[-1] < 5 * 600
