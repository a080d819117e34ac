"""Every query of the dashboards, answered by a real Prometheus that reads two exporters of one run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from exporter.gpu.backend import OK, Event, Extras, Report
from exporter.gpu.demo import Demo
from exporter.gpu.state import State
from exporter.gpu.worker import message
from exporter.runs.signals import SIGNALS
from exporter.runs.stats.catalogue import RUN_FAMILIES, STATES, STATISTICS
from stepwatch.alerts.model.runs import SHOWN_STATE, onset_rules
from tests.grafana.conftest import Json
from tests.grafana.queries import dashboard_queries, panels_of
from tests.real import PrometheusServer, query
from tests.real.listening import Exposing
from tests.real.waiting import eventually
from tests.rules.rendered import recorded

pytestmark = pytest.mark.e2e


RUN = 'ppo/强化 "7" it\'s & a+b'
OTHER_RUN = "ppo/other"
SICK, RESET_WANTED, RESET_DUE, REPAIR_WAITS, NO_SPARE = 5, 3, 2, 1, 0
GPUS = "(max by (instance, gpu)"
"""How a query begins that asks for each GPU of a run."""


def sample(name: str, value: float, **labels: str) -> str:
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value}"


def exposition(run: str) -> Iterator[str]:
    """Everything that an exporter may serve about one run."""
    run = run.replace('"', '\\"')
    for family in RUN_FAMILIES:
        if family.name not in {"rl_run_state", "rl_run_info"}:
            yield sample(family.name, 3, run=run)
    for state in STATES:
        yield sample("rl_run_state", int(state == "running"), run=run, state=state)
    for number in range(9):  # one more than have a place in the legend
        yield sample("rl_reward_component", number / 10, run=run, component=f"part {number}")
        yield sample("rl_validation_component", number / 10, run=run, dataset=f"set {number}")
    yield sample("rl_raw", 0.5, run=run, key="actor/own")
    yield sample("rl_run_info", 1, run=run, framework="verl", source="console")
    for signal in SIGNALS:
        yield sample(f"rl_{signal.name}", 0.5, run=run)
    for statistic in STATISTICS:
        yield sample(statistic.metric, 0.25, run=run, **statistic.labels)


def gpus() -> str:
    """The page of our exporter: eight simulated GPUs, of which one is lost and one has reported errors."""
    demo, box = Demo(Extras(sick=SICK)), State(interval=60)
    demo.open()
    reports = [
        (card, Report(0.0, OK, tuple(read for quantity in card.quantities for read in quantity.read())))
        for card in demo.cards()[:-1]
    ]
    lost, sick = demo.cards()[-1], demo.cards()[SICK]
    events = [Event(sick.uuid, code, time.time()) for code in (48, 48, 13)]
    reported = json.loads(message(OK, demo.system(), [*reports, (lost, Report(0.0, "lost"))], events))
    box.update(reported, 0.0, time.time())
    box.count(reported["events"])
    text = box.page(0.0).decode()
    for metric, gpu, value in (
        ("gpu_recovery_action", RESET_WANTED, 1),
        ("gpu_recovery_action", RESET_DUE, 4),
        ("gpu_row_remap_pending", REPAIR_WAITS, 1),
        ("gpu_row_remap_failed", NO_SPARE, 1),
    ):
        text, changed = re.subn(rf'(?m)^({metric}{{.*\bgpu="{gpu}".*}}) 0\.0$', rf"\1 {value}", text)
        assert changed == 1, metric
    return text


def dcgm() -> Iterator[str]:
    """Two more, which NVIDIA's exporter reports."""
    for gpu in "89":
        yield sample("DCGM_FI_DEV_GPU_UTIL", 40, gpu=gpu)
        yield sample("DCGM_FI_DEV_FB_USED", 1024, gpu=gpu)


GPU_PAGE = gpus()
"""Does not change, so that what is shown of it is known."""


def page(_: str) -> str:
    return "\n".join([*exposition(RUN), *exposition(OTHER_RUN), *dcgm(), GPU_PAGE.strip()])


def settings(port: int) -> Json:
    targets = [{"targets": [f"127.0.0.1:{port}"]}]
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": name, "static_configs": targets} for name in ("runs", "twin")],
        "rule_files": ["rules.yml"],
    }


def rules() -> Json:
    alerts = [
        {
            "alert": name,
            "expr": f'max by (run) (rl_reward{{run!="{OTHER_RUN}"}}) > 0',
            "labels": {"severity": severity},
        }
        for name, severity in (("KLExplosion", "critical"), ("KLHigh", "warning"))
    ]
    alerts += [
        {
            "alert": "GPUXid",
            "expr": f'max by (instance, gpu, uuid, xid) (gpu_xid_errors_total{{xid="{code}"}}) > 0',
            "labels": {"severity": severity, "topic": "gpu"},
        }
        for code, severity in ((48, "critical"), (13, "warning"))
    ]
    wanted = "max by (instance, gpu, uuid) (gpu_recovery_action == 1)"
    page = {"severity": "critical", "topic": "gpu"}
    alerts.append(
        {"alert": "GPURecoveryNeeded", "expr": wanted, "for": "1h", "labels": page}
    )  # still pending
    late = f'rl_step{{run="{OTHER_RUN}"}} > 0'
    alerts.append({"alert": "Stalled", "expr": f"max by (run) ({late})", "labels": {"severity": "info"}})
    shown = [rule for rule in recorded("shown") if rule["record"] == SHOWN_STATE]
    return {"groups": [{"name": "rl", "rules": [*alerts, *onset_rules(), *shown]}]}


@pytest.fixture(scope="module", params=["2.42", "3.13"])
def prometheus_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with Exposing(page) as exporter:
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings(exporter.port)))
        (folder / "rules.yml").write_text(yaml.safe_dump(rules()))
        with PrometheusServer(request.param, folder) as server:
            wait_for_two_exporters_and_all_alerts(server.url)
            yield server.url


def wait_for_two_exporters_and_all_alerts(url: str) -> None:
    wanted = {
        SHOWN_STATE: 2,
        "up == 1": 2,
        'ALERTS{alertstate="firing"}': 5,
        "rate(gpu_energy_joules_total[1m])": 14,
        "max_over_time(max(rl_step_seconds)[1m:5s])": 1,  # some panels look at points so far apart
    }
    eventually(lambda: all(len(query(url, expr)) >= count for expr, count in wanted.items()), pause=0.2)


def test_a_run_that_shows_signs_of_life_but_whose_steps_are_overdue_is_stalled(
    default: dict[str, Json], prometheus_url: str
) -> None:
    names = state_names(default["stepwatch-runs"])
    (asked,) = (each for each in dashboard_queries(default["stepwatch-runs"]) if each.panel == "States")
    states = {each["metric"]["run"]: names[each["value"][1]] for each in query(prometheus_url, asked.expr)}

    assert states == {RUN: ("running", "green"), OTHER_RUN: ("stalled", "red")}


def state_names(dashboard: Json) -> dict[str, tuple[str, str]]:
    (panel,) = (each for each in panels_of(dashboard) if each["title"] == "States")
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    return {value: (each["text"], each["color"]) for value, each in mapping["options"].items()}


@pytest.fixture(name="box", scope="module")
def _box(prometheus_url: str) -> str:
    instance: str = query(prometheus_url, "up")[0]["metric"]["instance"]
    return instance


def shown_in(panel: str, dashboard: Json, url: str, box: str) -> list[tuple[dict[str, str], float]]:
    """Labels and values of all that a panel about GPUs shows."""
    return [
        (found["metric"], float(found["value"][1]))
        for asked in dashboard_queries(dashboard, instance=box)
        if asked.panel == panel
        for found in query(url, asked.limit)
    ]


def test_a_gpu_that_needs_someone_is_not_ok(default: dict[str, Json], prometheus_url: str, box: str) -> None:
    dashboard = default["stepwatch-gpu"]
    table, timeline = (
        next(each for each in panels_of(dashboard) if each["title"] == title)
        for title in ("Side by side", "State")
    )
    (mapping,) = timeline["fieldConfig"]["defaults"]["mappings"]
    (state,) = (each for each in table["fieldConfig"]["overrides"] if each["matcher"]["options"] == "state")
    names = {float(value): (each["text"], each["color"]) for value, each in mapping["options"].items()}
    first = next(each for each in dashboard_queries(dashboard, instance=box) if each.panel == "Side by side")
    found = {each["metric"]["gpu"]: float(each["value"][1]) for each in query(prometheus_url, first.expr)}

    assert {"id": "mappings", "value": [mapping]} in state["properties"]
    assert {gpu: names[value] for gpu, value in found.items()} == {
        "0": ("faulty", "orange"),
        "1": ("reset due", "orange"),
        "2": ("reset due", "orange"),
        "3": ("needs reset", "red"),
        "4": ("ok", "green"),
        "5": ("faulty", "red"),
        "6": ("ok", "green"),
        "7": ("not working", "red"),
    }
    assert sorted(found, key=found.__getitem__, reverse=True)[:3] == ["7", "3", "5"], "the worst first"
    assert table["transformations"][-1]["options"]["sort"] == [{"field": "state", "desc": True}]
    health = next(each for each in panels_of(dashboard) if each["title"] == "Health")
    sorts = [each["options"]["sort"][0] for each in health["transformations"] if each["id"] == "sortBy"]
    assert sorts == [{"field": name, "desc": True} for name in ("NVLink", "uncorrected", "state")]
    assert {
        (each["gpu"], each.get("reason", "")): value
        for each, value in shown_in("State", dashboard, prometheus_url, box)
    } == {(gpu, "lost" if gpu == "7" else ""): value for gpu, value in found.items()}


def test_the_line_of_a_hot_gpu_lies_below_where_it_slows_down(
    default: dict[str, Json], prometheus_url: str, box: str
) -> None:
    of_all = [
        value
        for labels, value in shown_in("Temperature", default["stepwatch-gpu"], prometheus_url, box)
        if not labels
    ]

    assert of_all == [87, 87 - 5]


def test_gpu_panels_of_a_run_are_filled_by_either_exporter(
    default: dict[str, Json], prometheus_url: str
) -> None:
    shown = {
        each["metric"]["gpu"]: float(each["value"][1])
        for asked in dashboard_queries(default["stepwatch-training"], RUN)
        if asked.panel == "GPU utilisation" and asked.expr.startswith(GPUS)
        for each in query(prometheus_url, asked.expr)
    }

    assert (shown["8"], shown["9"]) == (0.4, 0.4)
    assert 0.9 < shown["0"] < 1
