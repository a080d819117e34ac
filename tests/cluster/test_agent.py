"""An agent as `make up` starts it sends to a hub, which judges; while the hub is gone, the agent waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hub import QUICK, Hub
from tests.e2e.writer import writing
from tests.gpu.driver import Driver
from tests.native.installation import MAINLY_NEWEST, VERSIONS, Installation, made
from tests.own_logs import SICK
from tests.real.waiting import counted, eventually, let_pass

pytestmark = pytest.mark.e2e

NODE = "node-7"
OUTAGE = 60
"""Scrapes that the agent makes while there is no hub."""


@pytest.fixture(name="versions", params=MAINLY_NEWEST)
def _versions(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(name="hub")
def _hub(versions: str, tmp_path: Path) -> Iterator[Hub]:
    with Hub(VERSIONS[versions][0], tmp_path / "hub") as hub:
        yield hub


@pytest.fixture(name="agent")
def _agent(versions: str, hub: Hub, tmp_path: Path) -> Iterator[Installation]:
    """It reads eight GPUs of a driver of its own."""
    agent, driver = made(tmp_path, versions), Driver(tmp_path)
    driver.install()
    agent.environment.update(driver.environment)
    (agent.folder / "password").write_text("of this node\n")
    yield agent
    agent.run("down")
    driver.release()


def test_an_agent_sends_runs_and_gpus_to_the_hub_whose_alerts_fire_and_loses_nothing_while_it_is_gone(
    agent: Installation, hub: Hub
) -> None:
    configure(agent, hub)
    done = agent.up()

    assert done.returncode == 0, done.stderr + done.stdout
    assert f"This is the agent {NODE}: rules, notifications and dashboards are on the hub" in done.stdout
    assert f"The hub {hub.url} accepts its samples (last " in done.stdout
    assert parts(agent) == {"exporter", "gpu", "sender"}
    assert (agent.state / "data/sender").is_dir()
    assert not list((agent.state / "rendered").glob("*/generated/rules"))
    status = agent.run("status")
    assert status.returncode == 0, status.stdout
    assert f"\nThe hub {hub.url} accepts its samples (last " in status.stdout

    with writing(SICK, agent.folder / "my runs/ppo/sick.log", "--rate", "5", "--stay"):
        eventually(lambda: hub.firing(alertname="KLExplosion", run="ppo/sick"))
    own = f"{NODE}:{agent.ports['exporter']}"
    (run,) = hub.labels('rl_step{run="ppo/sick"}')
    assert (run["node"], run["instance"], run["job"]) == (NODE, own, "runs")
    eventually(lambda: len(hub.labels(f'gpu_up{{node="{NODE}"}} == 1')) == 8)
    assert {each["instance"] for each in hub.labels("gpu_up")} == {f"{NODE}:{agent.ports['gpu']}"}
    assert {each["instance"].split(":")[0] for each in hub.labels(f'up{{node="{NODE}"}}')} == {NODE}

    _what_only_a_hub_can_answer_is_refused(agent, hub)
    _nothing_is_lost(agent, hub)
    _another_role_replaces_the_parts(agent, hub)


def configure(agent: Installation, hub: Hub) -> None:
    settings = json.dumps({"url": hub.url, "password_file": "password"})
    agent.configure(f"role: agent\nnode: {NODE}\nhub: {settings}\n{QUICK}discovery: {{ray: null}}\n")


def parts(agent: Installation) -> set[str]:
    return {each["name"] for each in json.loads((agent.state / "parts.json").read_text())}


def _what_only_a_hub_can_answer_is_refused(agent: Installation, hub: Hub) -> None:
    for words in (("test-alert", "chat"), ("silence", "ppo"), ("alerts",)):
        done = agent.run(*words)
        assert done.returncode == 2
        assert done.stderr == (
            f"make {words[0]}: this machine is an agent of the hub {hub.url}. Expected: role: hub or all in "
            f"config.yaml. Fix: run `make {words[0]}` on the hub.\n"
        )
    done = agent.up("--demo")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "DEMO=1: this machine is an agent and would send simulated runs to the hub."
    )


def _nothing_is_lost(agent: Installation, hub: Hub) -> None:
    page = f"{agent.url('prometheus')}/metrics"
    made_by_agent = "prometheus_target_interval_length_seconds_count"
    scrapes = counted("scrapes", page, made_by_agent)
    hub.kill()
    let_pass(OUTAGE, scrapes)
    known = scrapes.count()
    hub.start()

    # The sender counts the intervals between its scrapes of a target: one less than the scrapes.
    counts = f'sum({made_by_agent}{{node="{NODE}"}})'
    eventually(lambda: hub.value(counts) >= known, scrapes, 20 * OUTAGE)
    lost = f'{counts} - sum(count_over_time(up{{node="{NODE}"}}[1h]))'
    eventually(lambda: hub.value(lost) <= 0, scrapes, 20 * OUTAGE, seen=lambda: f"{hub.value(lost)} are lost")


def _another_role_replaces_the_parts(agent: Installation, hub: Hub) -> None:
    agent.environment["STEPWATCH_SECRETS"] = str(agent.folder / "secrets")
    agent.configure(f"role: hub\n{QUICK}discovery: {{ray: null}}\n")
    done = agent.up()
    assert done.returncode == 0, done.stderr + done.stdout
    assert parts(agent) >= {"exporter", "gpu", "prometheus", "alertmanager", "receiver"}
    assert "sender" not in parts(agent)
    assert "\nThis is a hub. Agents connect to 127.0.0.1, port " in agent.run("status").stdout

    configure(agent, hub)
    done = agent.up()
    assert done.returncode == 0, done.stderr + done.stdout
    assert parts(agent) == {"exporter", "gpu", "sender"}
    assert len(agent.parts()) == 3
    assert agent.run("down").returncode == 0
    assert agent.pids() == set()
