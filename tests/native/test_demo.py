"""The demo as `make up DEMO=1` brings it up: it starts over on demand, and goes without a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.system import http_client
from tests.native.installation import Installation, made
from tests.real import query
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

SICK = ("KLExplosion", "demo/kl-explodes")


@pytest.fixture(name="installation")
def _installation(tmp_path: Path) -> Iterator[Installation]:
    installation = made(tmp_path, "newest")
    yield installation
    installation.run("down")


def held(installation: Installation) -> set[tuple[str, str]]:
    """Name and run of the alerts that Alertmanager holds."""
    alerts = json.loads(http_client.read(f"{installation.url('alertmanager')}/api/v2/alerts") or "[]")
    return {(alert["labels"]["alertname"], alert["labels"].get("run", "")) for alert in alerts}


def shows_demo(installation: Installation) -> bool:
    """Whether `status` has a line on the simulated trainers; all must be well."""
    status = installation.run("status")
    assert status.returncode == 0, status.stdout
    return any(line.startswith("demo ") for line in status.stdout.splitlines())


@pytest.mark.world
def test_the_demo_starts_over_on_demand_and_goes_with_the_next_up(installation: Installation) -> None:
    assert installation.run("demo-reset").returncode == 1

    done = installation.up("--demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert shows_demo(installation)
    assert "simulated GPUs" in done.stdout
    simulated = installation.state / "data/demo-runs/demo"
    assert f"Reading simulated runs from {simulated}" in done.stdout
    assert len(list(simulated.iterdir())) == 4
    assert f"and {simulated.parent}: " in installation.run("status").stdout
    eventually(lambda: "4 running" in installation.run("status").stdout)
    eventually(lambda: SICK in held(installation))

    done = installation.run("demo-reset")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [run for _, run in held(installation) if run.startswith("demo/")]
    assert query(installation.url("prometheus"), 'count(rl_step{run=~"demo/.+"} < 100)')[0]["value"][1] == "4"
    eventually(lambda: SICK in held(installation))

    done = installation.up()
    assert done.returncode == 0
    assert "The demo was removed;" in done.stdout
    assert not shows_demo(installation)
    assert "The demo was removed;" not in installation.up().stdout
    assert not (installation.state / "data/demo-runs").exists()
    done = installation.run("demo-reset")
    assert done.returncode == 1
    assert done.stdout == "The demo is not running. `make up DEMO=1` starts it.\n"


def test_a_demo_that_was_taken_down_has_left_no_sample_that_raises_alerts_at_the_next_up(
    installation: Installation,
) -> None:
    assert installation.up("--demo").returncode == 0
    eventually(lambda: SICK in held(installation))

    assert installation.run("down").returncode == 0
    assert installation.up().returncode == 0

    prometheus = installation.url("prometheus")
    assert query(prometheus, 'sum(max_over_time(up{job="gpu"}[5m]))')[0]["value"][1] == "1"
    assert not query(prometheus, "rl_step or gpu_info")
    alerts = json.loads(http_client.read(f"{prometheus}/api/v1/alerts") or "")["data"]["alerts"]
    # A part that starts after Prometheus' first look at it is pending for a moment: not by an old sample.
    starting = {"ExporterDown", "TargetDown"}
    assert not [
        each for each in alerts if each["state"] == "firing" or each["labels"]["alertname"] not in starting
    ]
