"""The answer of *Stack*, by a real Prometheus that watches itself, and an Alertmanager that comes late."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.grafana.conftest import Dashboards, Json
from tests.grafana.queries import View, panels_of
from tests.real import PrometheusServer, free_port, query
from tests.real.listening import Exposing
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

TRUST = "Can I trust silence?"
NOT_SENT = 'alertmanager_notifications_failed_total{integration="webhook",reason="other"} 0'
OF_ITSELF = "rate(prometheus_rule_evaluation_failures_total[1m]) and on () rate(up[1m])"
"""What Prometheus knows once it has read itself twice."""


class Watching:
    """A Prometheus that reads itself; ``url`` is where it answers."""

    def __init__(self, folder: Path, version: str) -> None:
        self._targets = folder / "alertmanager.json"
        port = free_port()
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [
                {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]},
                {"job_name": "alertmanager", "file_sd_configs": [{"files": [str(self._targets)]}]},
            ],
            "rule_files": ["rules.yml"],
        }
        rule = {"record": "one", "expr": "1"}
        self.alertmanager()
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        (folder / "rules.yml").write_text(json.dumps({"groups": [{"name": "rl", "rules": [rule]}]}))
        self.server = PrometheusServer(version, folder, port=port)
        self.url = self.server.url

    def alertmanager(self, *ports: int) -> None:
        """Make Alertmanager the one at this port, or none."""
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}" for port in ports]}]))
        new.rename(self._targets)


@pytest.fixture(name="watching", params=["2.42", "3.13"])
def _watching(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watching]:
    watching = Watching(tmp_path, request.param)
    with watching.server:
        eventually(lambda: query(watching.url, OF_ITSELF), pause=0.2)
        yield watching


def figure(dashboard: Json, title: str, url: str) -> float | None:
    """What a stat shows; None for no value."""
    (target,) = next(each for each in panels_of(dashboard) if each["title"] == title)["targets"]
    found = query(url, View(0, 3600).expression(target["expr"]))
    return float(found[0]["value"][1]) if found else None


def answer(dashboard: Json, url: str) -> tuple[str, str]:
    """What the answer about silence reads, and its colour."""
    panel = next(each for each in panels_of(dashboard) if each["title"] == TRUST)
    value = figure(dashboard, TRUST, url)
    for mapping in panel["fieldConfig"]["defaults"]["mappings"]:
        options = mapping["options"]
        if mapping["type"] == "value" and (found := options.get(f"{value:.0f}")):
            return found["text"], found["color"]
        if mapping["type"] == "range" and value and options["from"] <= value <= options["to"]:
            return options["result"]["text"], options["result"]["color"]
    raise AssertionError(value)


RECEIVER = "receivers: [{name: a, webhook: {url: 'http://127.0.0.1:9/'}}]"


def test_silence_is_not_trusted_where_no_receiver_is_configured(
    default: dict[str, Json], dashboards: Dashboards, watching: Watching
) -> None:
    with Exposing(lambda _: NOT_SENT) as alertmanager:
        watching.alertmanager(alertmanager.port)
        notified = dashboards(RECEIVER)["stepwatch-stack"]
        eventually(lambda: answer(notified, watching.url) == ("yes", "green"), pause=0.2)
        assert answer(default["stepwatch-stack"], watching.url) == ("no: no receiver", "red")

    eventually(lambda: answer(notified, watching.url) == ("no", "red"), pause=0.2)
    assert answer(default["stepwatch-stack"], watching.url) == ("no: no receiver", "red")


def test_what_waits_for_a_robot_is_not_lost_and_what_it_refuses_is(
    dashboards: Dashboards, watching: Watching
) -> None:
    counted = {"failed": 0, "refused": 0}
    chat = 'integration="webhook",receiver_name="chat"'

    def page(_: str) -> str:
        return (
            f'alertmanager_notifications_failed_total{{{chat},reason="serverError"}} {counted["failed"]}\n'
            f"stepwatch_bridge_receiver_info{{{chat}}} 1\n"
            f'stepwatch_bridge_refused_total{{receiver_name="chat",reason="signature"}} {counted["refused"]}'
        )

    stack = dashboards(RECEIVER)["stepwatch-stack"]
    with Exposing(page) as alertmanager:
        watching.alertmanager(alertmanager.port)
        eventually(lambda: answer(stack, watching.url) == ("yes", "green"), pause=0.2)
        counted["failed"] = 5
        eventually(lambda: query(watching.url, "increase(alertmanager_notifications_failed_total[1h]) > 0"))
        assert answer(stack, watching.url) == ("yes", "green")
        counted["refused"] = 1
        eventually(lambda: answer(stack, watching.url) == ("no", "red"), pause=0.2)


def test_silence_is_not_trusted_without_alertmanager_and_is_once_it_answers(
    dashboards: Dashboards, watching: Watching
) -> None:
    stack = dashboards(RECEIVER)["stepwatch-stack"]
    assert figure(stack, TRUST, watching.url) == 1, "it is not a target"

    watching.alertmanager(free_port())
    eventually(lambda: query(watching.url, 'up{job="alertmanager"} == 0'), pause=0.2)
    assert figure(stack, TRUST, watching.url) == 1, "it does not answer"
    assert figure(stack, "Not sent", watching.url) is None

    with Exposing(lambda _: NOT_SENT) as alertmanager:
        watching.alertmanager(alertmanager.port)
        eventually(lambda: figure(stack, "Not sent", watching.url) == 0, pause=0.2)
        # Once Prometheus has dropped the target before it.
        eventually(lambda: figure(stack, TRUST, watching.url) == 0, pause=0.2)
