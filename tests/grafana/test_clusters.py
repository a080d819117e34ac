"""Runs of one name in several clusters, answered by a real Prometheus and drawn by Grafana's libraries."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from exporter.runs.signals import SIGNALS
from exporter.runs.stats.catalogue import RUN_FAMILIES, STATISTICS
from stepwatch.rules import alerting
from stepwatch.rules.subjects import SHOWN_STATE, SHOWN_STATES
from tests.grafana.conftest import Dashboards, Json
from tests.grafana.drawn import drawing
from tests.grafana.queries import View, dashboard_queries
from tests.real import PrometheusServer, query
from tests.real.listening import Exposing
from tests.real.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RUN = "ppo/a"
BOX = "node-7:9411"
REWARDS = {"east": 0.5, "west": 0.25, "": 0.75}
"""Of the run in each cluster; the last is of series without the label."""

CHOOSING = ("compare", "diagnose", "gpu", "rollout", "training", "tutorial")
"""The dashboards on which a run or a box is chosen by its name."""

OF_ALL = {"Pages of trainers", "Energy by run"}
"""Panels about more than what is chosen, with a row or a curve for each cluster."""


def page(cluster: str) -> str:
    """Everything about the run, its GPU, its server and its trainer's own page."""
    return "\n".join(_samples("" if cluster == "none" else cluster))


def _samples(cluster: str) -> Iterator[str]:
    def sample(name: str, value: float, **labels: str) -> str:
        inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
        return f"{name}{{{inside}}} {value}"

    own = {"rl_run_state", "rl_run_info", "rl_step", "rl_last_step_timestamp_seconds"}
    for family in RUN_FAMILIES:
        if family.name not in own:
            yield sample(family.name, 3, run=RUN)
    yield sample("rl_run_info", 1, run=RUN, framework="verl", source="prometheus_page")
    yield sample("rl_run_state", 1, run=RUN, state="running")
    yield sample(SHOWN_STATE, SHOWN_STATES.index("running") + 1, run=RUN)
    yield sample("rl_step", 7, run=RUN)
    yield sample("rl_last_step_timestamp_seconds", 1795000000, run=RUN)
    for signal in SIGNALS:
        yield sample(f"rl_{signal.name}", REWARDS[cluster], run=RUN)
    for statistic in STATISTICS:
        yield sample(statistic.metric, REWARDS[cluster], run=RUN, **statistic.labels)
    yield sample("rl_reward_component", 0.5, run=RUN, component="format")
    yield sample("rl_validation_component", 0.5, run=RUN, dataset="gsm8k")
    yield sample("rl_raw", 0.5, run=RUN, key="actor/own")
    yield sample("stepwatch_action_timestamp_seconds", 1, run=RUN, action="stop", alert="KLHigh", steps="1")
    gpu = {"instance": BOX, "gpu": "0", "uuid": f"GPU-{cluster}"}
    yield sample("gpu_up", 1, **gpu)
    yield sample("gpu_utilization_ratio", REWARDS[cluster], **gpu)
    yield sample("gpu_memory_used_bytes", REWARDS[cluster], **gpu)
    yield sample("rl_run_gpu", 1, run=RUN, **gpu)
    for name in ("num_requests_running", "num_requests_waiting", "generation_tokens_total"):
        yield sample(f"vllm:{name}", 3, instance="node-7:8000")
    for le in ("1", "+Inf"):
        for bucket in ("e2e_request_latency_seconds", "request_generation_tokens"):
            yield sample(f"vllm:{bucket}_bucket", 5, instance="node-7:8000", le=le)
        yield sample("verl_sample_generation_seconds_bucket", 5, run=RUN, le=le)
    yield sample("verl_average_reward", REWARDS[cluster], run=RUN)


def rules() -> Json:
    alert = {
        "alert": "KLHigh",
        "expr": "max by (cluster, run) (rl_reward) > 0",
        "labels": {"severity": "warning", "topic": "training"},
    }
    return {"groups": [{"name": "rl", "rules": [alert, *alerting.recorded()["rl"]]}]}


@pytest.fixture(name="url", scope="module")
def _url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("clusters")
    with Exposing(page) as exporters:
        jobs = [
            {
                "job_name": f"runs-{cluster or 'none'}",
                "metrics_path": f"/{cluster or 'none'}",
                "honor_labels": True,
                "static_configs": [
                    {"targets": [f"127.0.0.1:{exporters.port}"], "labels": {"cluster": cluster}}
                ],
            }
            for cluster in REWARDS
        ]
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": jobs,
            "rule_files": ["rules.yml"],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        (folder / "rules.yml").write_text(yaml.safe_dump(rules()))
        with PrometheusServer("3.13", folder) as server:
            for known in ("count_over_time(rl_reward[1m]) > 3", 'ALERTS{alertstate="firing"}'):
                eventually(lambda asked=known: len(query(server.url, asked)) == len(REWARDS), pause=0.2)
            onsets = "rl_alert_onset_timestamp_seconds"
            eventually(lambda: len(query(server.url, onsets)) == len(REWARDS), pause=0.2)
            yield server.url


@pytest.fixture(name="hub", scope="module")
def _hub(dashboards: Dashboards) -> dict[str, Json]:
    return dashboards("role: hub\nactions: {policies: [{on: KLExplosion, do: [notify]}]}")


@pytest.mark.parametrize("name", CHOOSING)
def test_of_a_cluster_without_the_run_nothing_is_shown(hub: dict[str, Json], url: str, name: str) -> None:
    """What another cluster has would be an answer."""
    filled = 0
    for here, nowhere in zip(
        dashboard_queries(hub[f"stepwatch-{name}"], RUN, BOX, "east"),
        dashboard_queries(hub[f"stepwatch-{name}"], RUN, BOX, "nowhere"),
        strict=True,
    ):
        if here.panel not in OF_ALL:
            filled += bool(query(url, here.expr))
            assert {float(each["value"][1]) for each in query(url, nowhere.expr)} <= {0}, nowhere
    assert filled > 3


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        *((name, "cluster") for name in ("training", "diagnose", "tutorial", "gpu", "rollout")),
        *(("compare", name) for name in ("clusters", "baseline_cluster")),
    ],
)
def test_the_clusters_to_choose_from_are_those_that_have_it(
    hub: dict[str, Json], url: str, name: str, variable: str
) -> None:
    """With one without a name, for what has no such label."""
    (found,) = (each for each in hub[f"stepwatch-{name}"]["templating"]["list"] if each["name"] == variable)
    names = [each["name"] for each in hub[f"stepwatch-{name}"]["templating"]["list"]]
    before = {"cluster": "run", "clusters": "runs", "baseline_cluster": "baseline"}
    if name not in {"rollout", "gpu"}:
        assert names.index(variable) == names.index(before[variable]) + 1

    def options(run: str, box: str) -> list[str]:
        view = View(0, 3600, {"run": run, "runs": run, "baseline": run, "instance": box})
        asked = re.fullmatch(r"query_result\((.+)\)", view.expression(found["query"]["query"]))
        assert asked
        # As Grafana writes the series of an answer, of which it takes the first group.
        found_labels = (
            ",".join(f'{key}="{text}"' for key, text in each["metric"].items())
            for each in query(url, asked[1])
        )
        written = [f"{{{labels}}} 1 1795000000000" for labels in found_labels]
        return [match[1] for each in written if (match := re.search(found["regex"].strip("/"), each))]

    assert sorted(options(RUN, BOX)) == ["", "east", "west"]
    if name != "rollout":
        assert options("ppo/other", "node-8:9411") == []


def test_with_one_cluster_no_dashboard_has_a_choice_of_it(default: dict[str, Json]) -> None:
    variables = [each["name"] for dashboard in default.values() for each in dashboard["templating"]["list"]]
    assert not [name for name in variables if "cluster" in name]
    assert "var-cluster" not in str(default)


def test_links_lead_to_the_run_of_the_row(hub: dict[str, Json], url: str) -> None:
    now, every = time.time(), dict.fromkeys(("folder", "framework", "state"), ".*")
    compared = {"runs": RUN, "clusters": ".*", "baseline": RUN, "baseline_cluster": "east", "reach": "0.5"}
    with drawing() as pen:
        runs = pen.show(hub["stepwatch-runs"], url, View(now - 60, now, every, interval=1))
        beside = pen.show(hub["stepwatch-compare"], url, View(now - 60, now, compared, interval=1))

    for table, label in (
        (runs["All runs"], "run"),
        (runs["Firing"], "about"),
        (beside["Side by side"], "run"),
    ):
        seen = []
        for row in table:
            (link,) = row[label]["links"]
            asks = parse_qs(urlsplit(link).query, keep_blank_values=True)
            assert asks["var-run"] == [RUN]
            assert asks["var-cluster"] == [row["cluster"]["text"]]
            seen.append(row["cluster"]["text"])
        assert sorted(seen) == sorted(REWARDS)
    rewards = {row["cluster"]["text"]: float(row["reward"]["text"]) for row in beside["Side by side"]}
    assert rewards == REWARDS
    curves = {each["name"] for each in beside["Reward"]} - {"step"}
    assert curves == {RUN, f"{RUN} @ east (baseline)", f"{RUN} @ west"}
    assert {each["name"].strip() for each in runs["States"]} == {RUN, f"{RUN} east", f"{RUN} west"}


def test_each_has_a_row_with_its_own_figures(default: dict[str, Json], url: str) -> None:
    now, every = time.time(), dict.fromkeys(("folder", "framework", "state"), ".*")
    with drawing() as pen:
        found = pen.show(default["stepwatch-runs"], url, View(now - 60, now, every, interval=1))
    rows = {
        row["cluster"]["text"]: (row["run"]["text"], row["state"]["text"], float(row["reward"]["text"]))
        for row in found["All runs"]
    }

    assert rows == {cluster: (RUN, "running", reward) for cluster, reward in REWARDS.items()}
    assert len(found["All runs"]) == 3
