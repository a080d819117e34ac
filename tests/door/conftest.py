"""The door before real programs, or before servers that misbehave."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPMessage
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter.door import backend_access
from stepwatch.system.environment import CHECKOUT
from stepwatch.system.http_client import Page
from tests.e2e.stack import PAIRS
from tests.real import AlertmanagerServer, PrometheusServer, Server, free_port


class Reply(NamedTuple):
    status: int
    headers: HTTPMessage
    body: bytes


def ask(
    address: str, path: str, method: str = "GET", body: bytes = b"", timeout: float = 60, **headers: str
) -> Reply:
    """One request; underscores in names of headers stand for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(http.client.HTTPConnection(address, timeout=timeout)) as connection:
        connection.request(method, path, body or None, named)
        with connection.getresponse() as answer:
            return Reply(answer.status, answer.headers, answer.read())


@dataclass
class Door:
    """A running door: host:port of its two sides, its process, and the folder that opens the backends."""

    prometheus: str
    alertmanager: str
    server: Server
    access: Path


@contextmanager
def before(
    prometheus: str,
    alertmanager: str,
    access: Path,
    *flags: str,
    program: tuple[str, ...] = ("-m", "exporter.door"),
) -> Iterator[Door]:
    """The door before two backends, given by host:port; ``program`` is what Python runs."""
    ports = free_port(), free_port()
    command = (
        *(sys.executable, *program),
        *(f"--prometheus-port={ports[0]}", f"--alertmanager-port={ports[1]}"),
        *(f"--prometheus={prometheus}", f"--alertmanager={alertmanager}"),
        f"--password-file={access / backend_access.PASSWORD}",
        *flags,
    )
    env = {
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONWARNINGS": "error",
    }
    ready = f"http://127.0.0.1:{ports[0]}/-/door/healthy"
    with Server(command, ready, env=env, cwd=CHECKOUT) as server:
        yield Door(f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}", server, access)


@dataclass
class Site:
    """Real programs, which want a password, and the door before them."""

    prometheus: PrometheusServer
    alertmanager: AlertmanagerServer
    door: Door


@pytest.fixture(name="site", params=PAIRS, ids=["oldest", "newest"], scope="module")
def _site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    access = folder / "backend"
    backend_access.make(access, mode=0o600)
    password = str(access / backend_access.PASSWORD)
    options = (f"--web.config.file={access / backend_access.WEB}",)
    (folder / "prometheus.yml").write_text("global: {}\n")
    (folder / "alertmanager.yml").write_text("route: {receiver: a}\nreceivers: [{name: a}]\n")
    prometheus = PrometheusServer(request.param[0], folder, options=options)
    alertmanager = AlertmanagerServer(request.param[1], folder, options=options)
    with ExitStack() as stack:
        for program in (prometheus, alertmanager):
            program.ready_url = Page(f"{program.url}/-/ready", password)
            stack.enter_context(program)
        addresses = f"127.0.0.1:{prometheus.port}", f"127.0.0.1:{alertmanager.port}"
        yield Site(prometheus, alertmanager, stack.enter_context(before(*addresses, access)))
