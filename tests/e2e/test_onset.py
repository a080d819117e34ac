"""One run, one onset: whatever shows an alert says the same step and time of when it left its limit."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from exporter.alert_labels import ONSET, ONSET_STEP
from exporter.runs.light import formatting
from stepwatch.backtest.replay import Progress
from tests.e2e.stack import PAIRS, Stack
from tests.grafana.queries import Json, View, ask, marks_of, panels_of
from tests.judge.real_logs import loaded
from tests.real.waiting import let_pass

pytestmark = pytest.mark.e2e

RUN = "ppo/one"
WELL, LEFT, LAST = 60, 63, 66
"""Steps: the last with a low KL, the one at which it has been high for three, and the last of all."""
WAITS = 15
"""Seconds for which Stalled must hold before it fires."""


class Seen(NamedTuple):
    """The stack, its log, and when the run began."""

    stack: Stack
    log: Path
    began: float


@pytest.fixture(name="seen", scope="module")
def _seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """A stack that has seen each step of a run whose KL rises, and which then hangs."""
    dice, began = random.Random(1), time.time()
    quick = {"Stalled": {"silence": "10s", "intervals": 1}}
    with Stack(tmp_path_factory.mktemp("stack"), PAIRS[-1], alerts=quick) as stack:
        log = stack.runs / f"{RUN}.jsonl"
        log.parent.mkdir()
        with log.open("w", buffering=1) as file:
            for step in range(1, LAST + 1):
                kl = dice.uniform(0.01, 0.02) if step <= WELL else dice.uniform(2, 2.1)
                values = {"actor/kl_loss": kl, "critic/score/mean": dice.uniform(0.4, 0.5)}
                file.write(json.dumps({"step": step, "data": values}) + "\n")
                if step >= WELL - 1:
                    stack.wait_step(RUN, step)
                    let_pass(2, stack.evaluations)
            stack.wait_until(lambda: stack.query('ALERTS{alertname="Stalled",alertstate="firing"}'))
            stack.wait_sent(RUN, {"KLExplosion"})
            stack.wait_sent(RUN, {"Stalled"})
            let_pass(2, stack.evaluations)
            yield Seen(stack, log, began)


def recorded(stack: Stack, metric: str, alert: str) -> float:
    (found,) = stack.query(f'{metric}{{run="{RUN}",alertname="{alert}"}}')
    return float(found["value"][1])


def of_page(stack: Stack) -> dict[str, Json]:
    """What the light page's JSON says of each alert."""
    with urllib.request.urlopen(f"http://{stack.config.address('exporter')}/api/v1/runs", timeout=10) as page:
        (run,) = json.load(page)["runs"]
    return {alert["alert"]: alert for alert in run["alerts"]}


def dashboard(seen: Seen, name: str) -> tuple[str, Json, View]:
    path = seen.stack.state.rendered / f"grafana/generated/dashboards/{name}.json"
    view = View(seen.began, time.time(), {"run": RUN, "band": "60"})
    return f"http://{seen.stack.config.address('prometheus')}", json.loads(path.read_text()), view


def of_table(seen: Seen, name: str, title: str) -> list[dict[str, float]]:
    """What each query of a table says, by alert."""
    url, shown, view = dashboard(seen, name)
    (panel,) = (each for each in panels_of(shown) if each["title"] == title)
    return [
        {each["metric"]["alertname"]: float(each["value"][1]) for each in ask(url, target, view)["result"]}
        for target in panel["targets"]
    ]


def started(alert: dict[str, Any]) -> float:
    """When an alert fired, as Alertmanager was told."""
    return datetime.fromisoformat(f"{alert['startsAt'][:19]}+00:00").timestamp()


@pytest.mark.parametrize(("alert", "step"), [("KLExplosion", LEFT), ("Stalled", LAST)])
def test_every_place_says_the_same_step_and_time_of_an_onset(seen: Seen, alert: str, step: int) -> None:
    stack = seen.stack
    onset = recorded(stack, ONSET, alert)
    assert recorded(stack, ONSET_STEP, alert) == step

    page = of_page(stack)[alert]
    assert (page["since"], page["since_step"]) == (onset, step)
    url, training, view = dashboard(seen, "training")
    marks = [mark for each in training["annotations"]["list"] for mark in marks_of(url, each, view)]
    assert [(mark["title"], mark["time"]) for mark in marks if alert in mark["title"]] == [
        (f"{alert} at step {step}", 1000 * onset)
    ]
    assert of_table(seen, "training", "Firing")[0][alert] == 1000 * onset
    since, steps = of_table(seen, "diagnose", "Alerts")
    assert (since[alert], steps[alert]) == (1000 * onset, step)

    sent = stack.wait_sent(RUN, {alert})
    waits = WAITS if alert == "Stalled" else 0
    assert started(sent) - waits == onset


def test_the_page_of_the_run_has_the_alert_from_its_onset_on(seen: Seen) -> None:
    address = f"http://{seen.stack.config.address('exporter')}/{formatting.page(RUN)}"

    def shown() -> str:
        with urllib.request.urlopen(address, timeout=10) as page:
            text: str = page.read().decode()
        return text

    seen.stack.wait_until(lambda: f"KLExplosion, critical: steps {LEFT} to {LAST}" in shown())
    assert f"KLExplosion since step {LEFT}" in " ".join(shown().split())


def test_a_backtest_of_its_log_has_the_alert_from_the_same_step_on(seen: Seen) -> None:
    with loaded([seen.log], seen.stack.config) as backtest:
        (run,) = backtest.results(Progress()).judged
    assert {alert.alert: alert.first_step for alert in run.alerts}["KLExplosion"] == LEFT


def test_a_prometheus_that_was_started_again_keeps_the_onset(seen: Seen) -> None:
    stack, before = seen.stack, recorded(seen.stack, ONSET, "KLExplosion")
    stack.prometheus.stop()
    stack.prometheus.start()

    def taken_for_new() -> bool:
        times = stack.query('ALERTS_FOR_STATE{alertname="KLExplosion"}')
        return any(float(each["value"][1]) > before for each in times)

    stack.wait_until(taken_for_new)
    let_pass(3, stack.evaluations)
    assert recorded(stack, ONSET, "KLExplosion") == before
    stack.wait_until(lambda: of_page(stack)["KLExplosion"]["since"] == before)
    assert of_table(seen, "training", "Firing")[0]["KLExplosion"] == 1000 * before
