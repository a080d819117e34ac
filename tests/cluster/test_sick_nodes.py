"""Sick nodes of a hub: a slow GPU, an InfiniBand link that goes down, an agent whose samples are refused."""

from __future__ import annotations

import json
import time
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
from tests.real.remote_write import send
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

LIMITS = "alerts: {Straggler: {for: 2s}, InfiniBandErrors: {for: 2s}, AgentRefused: {for: 2s}}\n"
NODE = "node-7"
FASTEST = 1.98e9


@pytest.fixture(name="version", params=MAINLY_NEWEST)
def _version(request: pytest.FixtureRequest) -> str:
    return VERSIONS[request.param][0]


@pytest.fixture(name="hub")
def _hub(version: str, tmp_path: Path) -> Iterator[Hub]:
    with Hub(version, tmp_path / "hub", LIMITS) as hub:
        yield hub


def write(hub: Hub, *series: tuple[dict[str, str], float]) -> None:
    """Send a sample of now of each series, as the node's agent does."""
    now = time.time()
    send(f"{hub.url}/api/v1/write", [({**labels, "node": NODE}, [(now, value)]) for labels, value in series])


def card(number: int, clock: float) -> list[tuple[dict[str, str], float]]:
    """What the GPU exporter says of a busy GPU of four."""
    labels = {"job": "gpu", "instance": f"{NODE}:9411", "gpu": str(number), "uuid": f"GPU-{number}"}
    return [
        ({**labels, "__name__": "gpu_up"}, 1),
        ({**labels, "__name__": "gpu_info", "name": "NVIDIA H100"}, 1),
        ({**labels, "__name__": "gpu_utilization_ratio"}, 1),
        ({**labels, "__name__": "gpu_clock_hertz", "domain": "sm"}, clock),
        ({**labels, "__name__": "gpu_clock_max_hertz", "domain": "sm"}, FASTEST),
    ]


def test_one_slow_gpu_of_four_is_a_straggler(hub: Hub) -> None:
    run = {"__name__": "rl_run_state", "job": "runs", "instance": f"{NODE}:9410", "run": "ppo"}

    def work(*clocks: float) -> None:
        cards = [each for number, clock in enumerate(clocks) for each in card(number, clock)]
        write(hub, ({**run, "state": "running"}, 1), *cards)

    def fired() -> bool:
        work(0.97 * FASTEST, 0.95 * FASTEST, 0.7 * FASTEST, FASTEST)
        return bool(hub.firing(alertname="Straggler"))

    eventually(fired, pause=0.5)
    assert [(each["instance"], each["gpu"]) for each in hub.firing(alertname="Straggler")] == [
        (f"{NODE}:9411", "2")
    ]


def test_an_infiniband_link_that_goes_down_is_an_error_of_its_port(hub: Hub) -> None:
    labels = {"__name__": "node_infiniband_link_downed_total", "job": "node", "instance": f"{NODE}:9100"}

    def count(downs: float) -> None:
        ports = [{**labels, "device": device, "port": "1"} for device in ("mlx5_0", "mlx5_1")]
        write(hub, (ports[0], 1), (ports[1], downs))

    def fired(downs: float) -> bool:
        count(downs)
        return bool(hub.firing(alertname="InfiniBandErrors"))

    count(3)
    eventually(lambda: hub.labels(labels["__name__"]))
    assert not fired(3)
    eventually(lambda: fired(4), pause=0.5)
    assert [each["device"] for each in hub.firing(alertname="InfiniBandErrors")] == ["mlx5_1"]


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
