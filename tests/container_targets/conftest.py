"""A Docker Engine, and containers on it that have a page for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.real import free_port
from tests.real.docker import NODE_EXPORTER, Docker, standins

Start = Callable[..., None]


@pytest.fixture(scope="module", name="docker")
def _docker() -> Iterator[Docker]:
    with Docker() as docker:
        docker.load(standins())
        yield docker


@pytest.fixture(name="start")
def _start(docker: Docker) -> Iterator[Start]:
    """Starts a container with a page at a port and path; those of a test are gone at its end."""
    started: list[str] = []

    def start(name: str, *options: str, listen: str = ":9100", page: str = "/metrics", **labels: str) -> None:
        reported = [f"--label=stepwatch.{key}={text}" for key, text in labels.items()]
        words = (f"--web.listen-address={listen}", f"--web.telemetry-path={page}")
        image = (NODE_EXPORTER, *words, "--collector.disable-defaults")
        docker.docker("run", "--detach", f"--name={name}", *reported, *options, *image)
        started.append(name)

    yield start
    for name in started:
        docker.docker("rm", "--force", name)


@pytest.fixture(name="port")
def _port() -> int:
    return free_port()
