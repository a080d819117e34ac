"""A trainer's log goes in, the right message comes out of the webhook; or none does."""

from __future__ import annotations

import re

import pytest

from stepwatch.services.health_report import ALERTS, firing
from stepwatch.system import http_client
from tests.e2e.stack import MAINLY_NEWEST, Stack
from tests.e2e.writer import writing
from tests.own_logs import HEALTHY, RESUMED, SICK
from tests.real.waiting import eventually, let_pass

pytestmark = pytest.mark.e2e

PAGES = {"RewardCollapse", "KLExplosion"}
LAST = 100
"""Step of the healthy run."""


@pytest.fixture(scope="module", params=MAINLY_NEWEST)
def stack(request, tmp_path_factory):
    with Stack(tmp_path_factory.mktemp("stack"), request.param) as running:
        yield running


@pytest.fixture(scope="module")
def healthy(stack):
    """Runs beside all other tests of its stack."""
    with writing(HEALTHY, stack.runs / "healthy.log", "--rate", "2") as process:
        yield process


@pytest.mark.parametrize("form", ["console", "jsonl"])
def test_a_sick_run_delivers_its_critical_alert_with_its_name_step_and_values(stack, healthy, form):
    options = ["--jsonl"] if form == "jsonl" else []
    run = f"ppo/sick-{form}"
    target = stack.runs / f"{run}.{'jsonl' if options else 'log'}"

    with writing(SICK, target, "--stay", *options):
        alert = stack.wait_sent(run, PAGES)

    assert alert["labels"]["severity"] == "critical"
    said = alert["annotations"]["description"]
    assert re.search(r", limit .*; step \d+", said)
    assert alert["annotations"]["action"]
    assert "?" not in said
    # this stack has no Grafana
    page = f"http://{stack.config.address('exporter')}/run/{run.replace('/', '%2F')}"
    assert alert["annotations"]["dashboard_url"] == page
    named = f"critical  {alert['labels']['alertname']}  {run}  fired at "
    alerts = http_client.read(f"http://{stack.config.address('alertmanager')}{ALERTS}")
    assert any(line.startswith(named) for line in firing(alerts, silences=None))


@pytest.mark.parametrize("form", ["console", "jsonl"])
def test_a_killed_writer_brings_the_alert_of_the_contract_and_nothing_resolves_before(stack, healthy, form):
    options, expected = (["--jsonl"], "RunStopped") if form == "jsonl" else ([], "RunVanished")
    run = f"killed-{form}"
    target = stack.runs / f"{run}.{'jsonl' if options else 'log'}"

    # as far as step 60 of the second start
    with writing(RESUMED, target, "--steps", "75", "--stay", *options) as process:
        stack.wait_step(run, 60)
        process.kill()
        alert = stack.wait_sent(run, {expected})

    assert alert["labels"]["severity"] == ("warning" if expected == "RunStopped" else "critical")
    assert stack.sent(run, "resolved") == []


def test_a_sick_run_whose_writer_is_killed_resolves_nothing(stack, healthy):
    run = "sick-killed"
    with writing(SICK, stack.runs / f"{run}.log", "--stay") as process:
        stack.wait_sent(run, PAGES)
        process.kill()
        stack.wait_sent(run, {"RunVanished"})

    assert stack.sent(run, "resolved") == []


def test_a_healthy_run_that_ends_with_its_end_mark_sends_nothing(stack, healthy):
    eventually(lambda: healthy.poll() is not None)
    stack.wait_step("healthy", LAST)
    stack.wait_until(lambda: stack.query('rl_run_state{run="healthy",state="finished"} == 1'))
    let_pass(6, stack.evaluations)

    assert stack.query('rl_run_state{run="healthy",state="finished"} == 1')
    assert stack.sent("healthy") == []
    assert stack.sent("") == []
