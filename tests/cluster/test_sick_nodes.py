"""Sick nodes of a hub: a slow GPU, an InfiniBand link that goes down, an agent whose samples are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from exporter.door.agent_access import new_token
from tests.cluster.hub import Hub
from tests.door.conftest import before
from tests.door.remote_write import AgentServer
from tests.native.installation import MAINLY_NEWEST, VERSIONS
from tests.real import free_port
from tests.real.credentials import protected
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

LIMITS = "alerts: {Straggler: {for: 2s}, InfiniBandErrors: {for: 2s}, AgentRefused: {for: 2s}}\n"
NODE = "node-7"


@pytest.fixture(name="version", params=MAINLY_NEWEST)
def _version(request: pytest.FixtureRequest) -> str:
    return VERSIONS[request.param][0]


@pytest.fixture(name="hub")
def _hub(version: str, tmp_path: Path) -> Iterator[Hub]:
    with Hub(version, tmp_path / "hub", LIMITS) as hub:
        yield hub


def test_an_agent_whose_samples_are_refused_is_named(hub: Hub, version: str, tmp_path: Path) -> None:
    """It has a token of its own, and sends samples of another node."""
    access, credentials, port = tmp_path / "credentials", tmp_path / "agents", free_port()
    protected(access)
    credentials.mkdir()
    token, digest = new_token()
    (credentials / NODE).write_text(digest)
    flags = (f"--agents-port={port}", f"--agents-credentials={credentials}")
    with ExitStack() as stack:
        door = stack.enter_context(before(f"127.0.0.1:{hub.port}", access, *flags))
        targets = tmp_path / "hub/prometheus/generated/targets/door.yml"
        targets.write_text(json.dumps([{"targets": [door.address]}]))
        other = {"node": "node-8"}
        stack.enter_context(
            AgentServer(version, tmp_path / "agent", f"http://127.0.0.1:{port}", token, other)
        )
        eventually(lambda: hub.firing(alertname="AgentRefused"), pause=0.5)
        assert [each.get("node") for each in hub.firing(alertname="AgentRefused")] == [NODE]
        assert not hub.labels('{node="node-8"}')
