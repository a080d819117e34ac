"""Alerts that fire: each is a row, a count and an onset of its own, and leads to what it is about."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from exporter.alert_labels import ABOUT, ONSET, ONSET_STEP
from exporter.runs.overview.models import RunId
from exporter.runs.overview.prometheus import Client
from stepwatch.rules import alerting
from stepwatch.rules.subjects import SHOWN_STATE, SHOWN_STATES
from tests.grafana.conftest import Json
from tests.grafana.drawn import drawing
from tests.grafana.queries import View, dashboard_queries
from tests.real import PrometheusServer, query
from tests.real.listening import Exposing
from tests.real.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RUN, OVER = "ppo/a&b", "ppo/over"
START, LAST = 1795000000, 1795003600
"""The first step of both runs, and the last one of that which is over."""
ALL = dict.fromkeys(("folder", "framework", "state"), ".*")
HOST, BOX, SERVER = ({"instance": f"n1:{port}"} for port in (9100, 9411, 8000))
ON_NODES = ("nodes", "machine", "n1:9100")

FIRING: list[tuple[str, str, Mapping[str, str], str, tuple[str, ...]]] = [
    ("NodeLost", "stack", {"node": "n1"}, "n1", ("nodes",)),
    ("NodeLost", "stack", {"node": "n2"}, "n2", ("nodes",)),
    ("RayNodeLost", "rollout", {"job": "ray", "node": "n1"}, "ray n1", ("nodes",)),
    ("RayNodeLost", "rollout", {"job": "ray", "node": "n2"}, "ray n2", ("nodes",)),
    (
        "InfiniBandErrors",
        "stack",
        {**HOST, "device": "mlx5_0", "port": "1"},
        "n1:9100 mlx5_0 port 1",
        ON_NODES,
    ),
    (
        "InfiniBandErrors",
        "stack",
        {**HOST, "device": "mlx5_0", "port": "2"},
        "n1:9100 mlx5_0 port 2",
        ON_NODES,
    ),
    ("MountHung", "stack", {"instance": "n1:9410", "mount": "/a"}, "n1:9410 /a", ("nodes",)),
    ("MountHung", "stack", {"instance": "n1:9410", "mount": "/b"}, "n1:9410 /b", ("nodes",)),
    ("TargetDown", "stack", {"job": "gpu", **BOX}, "gpu n1:9411", ("stack",)),
    ("GPULost", "gpu", {**BOX, "gpu": "3"}, "n1:9411 GPU 3", ("gpu", "instance", "n1:9411")),
    ("EngineQueue", "rollout", {"job": "vllm", **SERVER}, "vllm n1:8000", ("rollout", "server", "n1:8000")),
    ("KLHigh", "kl", {"run": RUN}, RUN, ("training", "run", RUN)),
    ("RunFailed", "progress", {"run": OVER}, OVER, ("training", "run", OVER)),
]
"""Name, topic, labels, what tables say that the alert is about, and the dashboard with what it chooses."""


def page(_: str) -> str:
    lines = []
    for run, state, last in ((RUN, "running", time.time()), (OVER, "failed", LAST)):
        lines += [
            f'rl_run_info{{run="{run}",framework="verl"}} 1',
            f'rl_run_state{{run="{run}",state="running"}} {int(state == "running")}',
            f'rl_run_state{{run="{run}",state="failed"}} {int(state == "failed")}',
            f'{SHOWN_STATE}{{run="{run}"}} {SHOWN_STATES.index(state) + 1}',
            f'rl_run_start_timestamp_seconds{{run="{run}"}} {START}',
            f'rl_last_step_timestamp_seconds{{run="{run}"}} {last}',
            f'rl_step{{run="{run}"}} 7',
            f'rl_reward{{run="{run}"}} 0.5',
            f'rl_run_power_watts{{run="{run}"}} 300',
            f'rl_run_gpu{{run="{run}",instance="n1:9411",gpu="0",uuid="GPU-{run}"}} 1',
        ]
    return "\n".join(lines)


def rules() -> Json:
    first, later = "vector(1)", f'vector(1) and on () count_over_time(ALERTS{{run="{RUN}"}}[1h]) > 3'
    alerts = [
        {
            "alert": name,
            "expr": later if about.endswith(("2", "/b")) else first,
            "labels": {**labels, "topic": topic, "severity": "critical"},
        }
        for name, topic, labels, about, _ in FIRING
    ]
    return {"groups": [{"name": "rl", "rules": [*alerts, *alerting.recorded()["rl"]]}]}


@pytest.fixture(name="url", scope="module", params=["2.42", "3.13"])
def _url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("firing")
    with Exposing(page) as exporter:
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [
                {
                    "job_name": "runs",
                    "honor_labels": True,
                    "static_configs": [{"targets": [f"127.0.0.1:{exporter.port}"]}],
                }
            ],
            "rule_files": ["rules.yml"],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        (folder / "rules.yml").write_text(yaml.safe_dump(rules()))
        with PrometheusServer(request.param, folder) as server:
            eventually(
                lambda: (
                    len(query(server.url, "ALERTS")) == len(FIRING)
                    and len(query(server.url, ONSET_STEP)) == 2
                ),
                pause=0.2,
            )
            # *GPU* asks for a point each 15 s.
            eventually(lambda: query(server.url, "count_over_time(rl_reward[1m]) > 16"), pause=0.2)
            yield server.url


@pytest.fixture(name="drawn", scope="module")
def _drawn(default: dict[str, Json], url: str) -> Iterator[dict[str, dict[str, list[Any]]]]:
    """What is read on the dashboards, by uid."""
    view = View(time.time() - 60, time.time(), {**ALL, "instance": "n1:9411", "machine": ".*"}, interval=1)
    with drawing() as pen:
        yield {name: pen.show(default[f"stepwatch-{name}"], url, view) for name in ("runs", "gpu", "nodes")}


def chosen(link: str) -> tuple[str, ...]:
    """The dashboard to which a link leads, with the variable that it chooses."""
    asks = parse_qs(urlsplit(link).query)
    variables = ((name.removeprefix("var-"), text) for name, (text,) in asks.items() if "var-" in name)
    return (urlsplit(link).path.removeprefix("/d/stepwatch-"), *(each for pair in variables for each in pair))


def during(link: str) -> tuple[str, str]:
    asks = parse_qs(urlsplit(link).query)
    return asks["from"][0], asks["to"][0]


def test_two_alerts_of_one_name_are_two_rows_that_say_what_each_is_about(
    drawn: dict[str, dict[str, list[Any]]],
) -> None:
    rows = sorted((row["alert"]["text"], row["about"]["text"]) for row in drawn["runs"]["Firing"])
    nodes = {row["about"]["text"] for row in drawn["nodes"]["Firing"] if row["alert"]["text"] == "NodeLost"}

    assert rows == sorted((name, about) for name, _, _, about, _ in FIRING)
    assert nodes == {"n1", "n2"}


def test_each_is_shown_around_a_run(default: dict[str, Json], url: str) -> None:
    (asked,) = (
        each
        for each in dashboard_queries(default["stepwatch-diagnose"], RUN)
        if each.panel == "Around the run"
    )
    found = sorted((each["metric"]["alertname"], each["metric"]["about"]) for each in query(url, asked.expr))

    assert found == sorted((name, about) for name, _, labels, about, _ in FIRING if "run" not in labels)


def test_each_has_its_own_onset_on_the_light_page_too(url: str) -> None:
    recorded = {
        tuple(each["metric"].get(label, "") for label in ("alertname", *ABOUT)): float(each["value"][1])
        for each in query(url, ONSET)
    }
    lost = [alert for alert in Client(url).firing()[RunId("")] if alert.name == "NodeLost"]
    since = {dict(alert.labels)["node"]: alert.since for alert in lost}

    assert len(recorded) == len(FIRING)
    assert since["n2"] - since["n1"] >= 2
    for node, at in since.items():
        assert at == recorded[("NodeLost", *(node if label == "node" else "" for label in ABOUT))]


def test_each_leads_to_the_dashboard_that_is_about_it(drawn: dict[str, dict[str, list[Any]]]) -> None:
    found = {}
    for row in drawn["runs"]["Firing"]:
        (link,) = row["about"]["links"]
        found[row["alert"]["text"], row["about"]["text"]] = chosen(link)
        assert during(link) == {
            RUN: (str(1000 * START), "now"),
            OVER: (str(1000 * START), str(1000 * (LAST + 60))),
        }.get(row["about"]["text"], ("now-24h", "now"))

    assert found == {(name, about): where for name, _, _, about, where in FIRING}


@pytest.mark.parametrize(
    ("name", "panel", "column"), [("runs", "All runs", "run"), ("gpu", "Energy by run", "run")]
)
def test_a_run_is_opened_from_its_start_to_its_end(
    drawn: dict[str, dict[str, list[Any]]], name: str, panel: str, column: str
) -> None:
    found = {row[column]["text"]: during(*row[column]["links"]) for row in drawn[name][panel]}

    assert found == {
        RUN: (str(1000 * START), "now"),
        OVER: (str(1000 * START), str(1000 * (LAST + 60))),
    }


@pytest.mark.parametrize(("panel", "runs"), [("Rewards", {RUN}), ("States", {RUN, OVER})])
def test_a_curve_of_a_run_knows_its_start_and_its_end(
    default: dict[str, Json], url: str, panel: str, runs: set[str]
) -> None:
    shown = next(each for each in default["stepwatch-runs"]["panels"] if each["title"] == panel)
    (link,) = shown["fieldConfig"]["defaults"]["links"]
    (asked,) = (each for each in dashboard_queries(default["stepwatch-runs"]) if each.panel == panel)
    found = {
        each["metric"]["run"]: (each["metric"]["from"], each["metric"]["to"])
        for each in query(url, asked.expr)
    }

    assert link["url"].endswith("&from=${__field.labels.from}&to=${__field.labels.to}")
    assert found == {
        run: (str(1000 * START), "now" if run == RUN else str(1000 * (LAST + 60))) for run in runs
    }
