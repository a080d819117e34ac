"""verl rewrites a prometheus.yml and reloads, twice: ours is never touched, and its servers are watched."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stepwatch.system import http_client
from tests.e2e.stack import MAINLY_NEWEST, Stack
from tests.runs.targets.verl import Engine, training, update_prometheus_config

pytestmark = pytest.mark.e2e

SETTINGS = {
    "alerts": {"EngineGone": {"for": "30s"}},
    "intervals": {"runs": "2s", "scrape": "2s", "stack_rules": "2s"},
}


@pytest.fixture(params=MAINLY_NEWEST, name="stack")
def _stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stack]:
    with Stack(
        tmp_path / "stack", request.param, discovery={"ray": str(tmp_path / "ray")}, **SETTINGS
    ) as stack:
        yield stack


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    """Where verl writes if nothing else is said; Ray makes session and link."""
    session = tmp_path / "ray" / "session_2026-08-21"
    session.mkdir(parents=True)
    (tmp_path / "ray" / "session_latest").symlink_to(session)
    return tmp_path / "ray" / "session_latest" / "metrics" / "prometheus" / "prometheus.yml"


@pytest.fixture(name="engines")
def _engines() -> Iterator[list[Engine]]:
    with ExitStack() as running:
        yield [running.enter_context(Engine()) for _ in range(3)]


def up(stack: Stack, value: int = 1) -> set[tuple[str, str]]:
    """Address and run of each rollout server that answers, or does not."""
    found = stack.query(f'up{{role="rollout",job="rollout"}} == {value}')
    return {(each["metric"]["instance"], each["metric"].get("run", "")) for each in found}


def alerting(stack: Stack, name: str) -> set[str]:
    """The servers that an alert tells of."""
    found = stack.query(f'ALERTS{{alertname="{name}",alertstate="firing"}}')
    return {each["metric"]["instance"] for each in found}


def rules(stack: Stack) -> list[str]:
    """All rules that Prometheus judges."""
    with http_client.direct.open(f"http://{stack.config.address('prometheus')}/api/v1/rules") as answer:
        groups = json.load(answer)["data"]["groups"]
    return [rule["name"] + rule["query"] for group in groups for rule in group["rules"]]


def rendered(stack: Stack) -> dict[str, bytes]:
    found = stack.state.rendered.glob("*/generated/**/*")
    return {str(file): file.read_bytes() for file in found if file.is_file()}


def test_no_server_leads_prometheus_elsewhere(stack, file, engines):
    beyond = engines[0]
    with Engine(f"{beyond.url}/metrics") as sly:
        update_prometheus_config(file, [sly.address], f"http://{stack.config.address('prometheus')}")
        stack.wait_until(lambda: up(stack, 0) == {(sly.address, "")})
        assert up(stack) == set()
    assert beyond.asked == []


def test_targets_and_rules_live_on_when_verl_rewrites_its_file(stack, file, engines):
    a, b, c = (engine.address for engine in engines)
    prometheus = f"http://{stack.config.address('prometheus')}"
    files, judged = rendered(stack), rules(stack)
    assert files

    with training(stack.runs / "one.log", [a, b], reward=0.1) as one:
        update_prometheus_config(file, [a, b], prometheus)
        stack.wait_until(lambda: up(stack) == {(a, "one"), (b, "one")})

        with training(stack.runs / "two.log", [c], reward=0.5):
            update_prometheus_config(file, [c], prometheus)
            stack.wait_until(lambda: up(stack) == {(a, "one"), (b, "one"), (c, "two")})

            stack.exporter.kill()
            time.sleep(2)
            assert up(stack) == {(a, "one"), (b, "one"), (c, "two")}
            stack.exporter.start()

            one.set()
            for engine in engines:
                engine.__exit__(None, None, None)
            stack.wait_until(lambda: up(stack) == set())
            stack.wait_until(lambda: not {a, b} & {address for address, _ in up(stack, 0)})
            stack.wait_until(lambda: alerting(stack, "EngineGone") == {c})
            # two minutes if the exporter, restarted, did not reach it before it was gone
            stack.wait_until(lambda: not up(stack, 0))

        assert {each["metric"]["job"] for each in stack.query("up == 1")} >= {"runs", "prometheus"}
        assert alerting(stack, "TargetDown") == set()
        assert (rendered(stack), rules(stack)) == (files, judged)
        assert stack.query("prometheus_config_last_reload_successful == 1")
