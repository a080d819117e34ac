from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compose.checkout import Checkout
from tests.real.docker import PYTHON, Docker, standins

NETWORK = "stepwatch_default"
SINK_PORT = 5001


@pytest.fixture(scope="module", name="docker")
def _docker() -> Iterator[Docker]:
    with Docker() as docker:
        docker.load(standins())
        yield docker


class Sink:
    """A webhook beside the containers; `received` are the messages so far."""

    def __init__(self, docker: Docker, checkout: Checkout) -> None:
        self._docker = docker
        script = "/sink/sink.py"
        volume = f"{checkout.folder}/tests/compose:/sink:ro"
        options = ("--detach", "--name=sink", f"--network={NETWORK}", f"--volume={volume}")
        docker.docker("run", *options, PYTHON, "python3", script, str(SINK_PORT))

    @property
    def received(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._docker.docker("logs", "sink").splitlines()]

    def alerts(self, status: str) -> list[tuple[str, str]]:
        """Name and run of each alert of this status, once per message."""
        return [
            (alert["labels"]["alertname"], alert["labels"].get("run", ""))
            for message in self.received
            for alert in message["alerts"]
            if alert["status"] == status
        ]

    def close(self) -> None:
        self._docker.docker("rm", "--force", "sink")


SETTINGS = {"receivers": [{"name": "sink", "webhook": {"url": f"http://sink:{SINK_PORT}/"}}]}


@pytest.fixture(scope="module", name="checkout")
def _checkout(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("checkout") / "stepwatch", docker, SETTINGS)


@pytest.fixture(scope="module", name="demo")
def _demo(checkout: Checkout) -> Iterator[Checkout]:
    """The demo, as `make up DEMO=1` brings it up; nothing of it is left at the end."""
    done = checkout.stepwatch("up", "--demo")
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        yield checkout
    finally:
        checkout.run(
            "docker", "compose", "--profile=demo", "--profile=tools", "down", "--volumes", "--timeout=5"
        )


@pytest.fixture(scope="module", name="sink")
def _sink(docker: Docker, demo: Checkout) -> Iterator[Sink]:
    sink = Sink(docker, demo)
    yield sink
    sink.close()
