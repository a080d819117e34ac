"""Exporter, rules, dashboards and docs speak of the same metrics and alerts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.gpu.contract import BOX_FAMILIES, GPU_FAMILIES
from exporter.runs import signals
from exporter.runs.contract import STATISTIC_HELP, STATISTICS, Hold
from exporter.runs.exposition import FAMILIES, RunText, page
from exporter.runs.health import Health, Polled
from exporter.runs.record import Record, TotalSteps
from exporter.runs.run import Clock, Options, Run
from exporter.runs.views import View
from stepwatch import pages
from tests.lacking import lacking
from tests.real import AlertmanagerServer, PrometheusServer
from tests.rules import expressions, gpu, host, ray, rendered, replay, rollout, servers, upkeep
from tests.rules.catalogue import RULES
from tests.rules.rendered import CHECKOUT
from tests.rules.series import Series
from tests.rules.stack import SCENARIOS

TOPICS = {"reward", "kl", "entropy", "length", "gradient", "progress", "gpu", "rollout", "stack"}
SEVERITIES = {"critical", "warning", "info"}

PROMETHEUS_METRICS = {
    "prometheus_config_last_reload_successful",
    "prometheus_notifications_dropped_total",
    "prometheus_notifications_errors_total",
    "prometheus_rule_evaluation_failures_total",
    "prometheus_rule_group_iterations_missed_total",
    "prometheus_target_scrapes_exceeded_sample_limit_total",
    "prometheus_tsdb_compactions_failed_total",
    "prometheus_tsdb_head_truncations_failed_total",
    "prometheus_tsdb_lowest_timestamp_seconds",
    "prometheus_tsdb_retention_limit_bytes",
    "prometheus_tsdb_storage_blocks_bytes",
    "prometheus_tsdb_wal_corruptions_total",
    "prometheus_tsdb_wal_writes_failed_total",
}
ALERTMANAGER_METRICS = {
    "alertmanager_config_last_reload_successful",
    "alertmanager_notifications_failed_total",
}
WRITTEN_BY_PROMETHEUS = {"up", "ALERTS", "ALERTS_FOR_STATE"}
DCGM_METRICS = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"}
"""Of NVIDIA's own exporter, where it is used instead of ours."""

ENGINE_METRICS = {name for names in rollout.SPELLINGS.values() for name in names.values()}
RAY_METRICS = {
    "ray_memory_manager_worker_eviction_total",
    "ray_node_disk_free",
    "ray_node_disk_usage",
    "ray_node_mem_total",
    "ray_object_store_memory",
}
NODE_METRICS = {
    "node_filesystem_avail_bytes",
    "node_filesystem_readonly",
    "node_filesystem_size_bytes",
    "node_memory_MemAvailable_bytes",
    "node_memory_MemTotal_bytes",
    "node_time_seconds",
}

SERIES_LIMIT = 250

DOCUMENTED = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \|([^|]*)\| [^|]+ \|$", re.MULTILINE)
"""A row of docs/metrics.md: name, type, unit, labels, meaning."""

RUN_METRICS = (CHECKOUT / "docs/metrics.md").read_text().partition("\n## GPUs\n")[0]
"""Its part about the run exporter."""


def _named(rule: dict[str, Any]) -> str:
    return f"{rule['alert']}-{rule['labels']['severity']}"


def _rules() -> list[dict[str, Any]]:
    return [rule for group in rendered.groups() for rule in rendered.rules(group)]


def _dashboards() -> Iterator[dict[str, Any]]:
    for path, content in rendered.files().items():
        if path.suffix == ".json":
            yield json.loads(content)


def _panel_queries() -> Iterator[str]:
    for dashboard in _dashboards():
        for panel in dashboard["panels"]:
            yield from (target["expr"] for target in panel["targets"])
        yield from (annotation["expr"] for annotation in dashboard["annotations"]["list"])
        for variable in dashboard["templating"]["list"]:
            yield re.sub(r"label_values\((.*), \w+\)", r"\1", variable["definition"])


def _rule_queries() -> Iterator[str]:
    for rule in _rules():
        yield rule["expr"]
        for annotation in rule["annotations"].values():
            yield from expressions.asked(annotation)


def _statistics(selected: Series) -> list[Series]:
    """The statistics that a selector asks for."""
    wanted = set(selected.labels)
    served = (Series(each.metric, tuple(each.labels.items())) for each in STATISTICS)
    found = [each for each in served if each.metric == selected.metric and wanted <= set(each.labels)]
    return found or [selected]


def _is_statistic(series: Series) -> bool:
    return series.metric.removeprefix("rl_") in STATISTIC_HELP


def test_exactly_the_statistics_that_rules_and_panels_ask_for_are_served() -> None:
    used = {
        (found.metric, frozenset(found.labels))
        for query in [*_rule_queries(), *_panel_queries()]
        for selected in map(expressions.series, expressions.selectors(expressions.parse(query)))
        if _is_statistic(selected)
        for found in _statistics(selected)
    }
    assert used == {(each.metric, frozenset(each.labels.items())) for each in STATISTICS}


def test_no_statistic_is_listed_twice() -> None:
    listed = [(each.metric, each.labels) for each in STATISTICS]
    assert all(listed.count(each) == 1 for each in listed)


def test_statistics_are_held_at_the_extreme_that_their_rules_look_for() -> None:
    found: dict[Series, set[str]] = {}
    for rule in rendered.rules("rl"):
        for selected, held in expressions.compared(expressions.parse(rule["expr"])):
            for each in _statistics(selected) if _is_statistic(selected) else ():
                found.setdefault(each, set()).add(held)
    listed = {Series(each.metric, tuple(each.labels.items())): each.hold for each in STATISTICS}
    # one that only panels or messages ask for is compared with nothing
    wanted = {series: found.get(series, {Hold.NONE.value}) for series in listed}
    assert {series: {hold.value} for series, hold in listed.items()} == wanted


def test_every_metric_of_rules_and_panels_is_served_by_somebody() -> None:
    known = {family.name for family in [*FAMILIES, *(family for family, _ in Health().samples())]}
    known |= {family.name for family in (*GPU_FAMILIES, *BOX_FAMILIES)} | DCGM_METRICS
    known |= PROMETHEUS_METRICS | ALERTMANAGER_METRICS | WRITTEN_BY_PROMETHEUS
    known |= ENGINE_METRICS | RAY_METRICS | NODE_METRICS
    used = {
        selected.name
        for query in [*_rule_queries(), *_panel_queries()]
        for selected in expressions.selectors(expressions.parse(query))
    }
    assert used - known == set()


@pytest.mark.e2e
@pytest.mark.parametrize("version", ["2.42", "3.13"])
def test_prometheus_serves_what_rules_ask_it_for(version: str, tmp_path: Path) -> None:
    nobody = "{static_configs: [{targets: ['127.0.0.1:1']}]}"
    (tmp_path / "prometheus.yml").write_text(
        "global: {evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
        f"alerting: {{alertmanagers: [{nobody}]}}\n"
    )
    (tmp_path / "rules.yml").write_text("groups: [{name: a, rules: [{alert: a, expr: vector(1)}]}]\n")
    _serves(PrometheusServer(version, tmp_path), PROMETHEUS_METRICS)


@pytest.mark.e2e
@pytest.mark.parametrize("version", ["0.25", "0.31"])
def test_alertmanager_serves_what_rules_ask_it_for(version: str, tmp_path: Path) -> None:
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: a}\nreceivers: [{name: a}]\n")
    _serves(AlertmanagerServer(version, tmp_path), ALERTMANAGER_METRICS)


def _serves(server: PrometheusServer | AlertmanagerServer, wanted: set[str]) -> None:
    """Fail unless the server has all these metrics, soon: some appear with their first event."""
    with server:
        deadline = time.monotonic() + 30
        while missing := wanted - _metrics(pages.read(f"{server.url}/metrics") or ""):
            assert time.monotonic() < deadline, missing
            time.sleep(0.2)


def _metrics(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("rule", _rules(), ids=_named)
def test_an_alert_says_what_it_is_and_where_to_look(rule: dict[str, Any]) -> None:
    assert rule["labels"].keys() == {"severity", "topic"}
    assert rule["labels"]["severity"] in SEVERITIES
    assert rule["labels"]["topic"] in TOPICS
    for label in rule["labels"].values():
        assert "{{" not in label
    for name in ("summary", "description", "runbook_url", "dashboard_url"):
        assert rule["annotations"][name]
    assert rule["annotations"]["runbook_url"].endswith(f"#{rule['alert'].lower()}")


@pytest.mark.parametrize("rule", _rules(), ids=_named)
def test_an_expression_avoids_what_breaks_silently(rule: dict[str, Any]) -> None:
    tree = expressions.parse(rule["expr"])
    called = {call.func.name for call in expressions.calls(tree)}
    assert "absent" not in called or rule.get("for")
    for call in expressions.calls(tree):
        if call.func.name in ("rate", "increase", "irate"):
            assert all(each.name.endswith("_total") for each in expressions.selectors(call))


@pytest.mark.parametrize("rule", [*rendered.rules("rl"), *rendered.rules("gpu")], ids=_named)
def test_two_exporters_of_one_run_break_no_join(rule: dict[str, Any]) -> None:
    alone = {each.name for each in expressions.bare(expressions.parse(rule["expr"]))}
    assert not {name for name in alone if name.startswith("rl_")}


def test_every_alert_has_cases_and_every_case_an_alert() -> None:
    about_runs = {(rule["alert"], rule["labels"]["severity"]) for rule in rendered.rules("rl")}
    assert {(rule.alert, rule.severity) for rule in RULES} == about_runs
    about_others = {(rule["alert"], rule["labels"]["severity"]) for rule in _rules()} - about_runs
    written = [each.SCENARIOS for each in (gpu, servers, rollout, ray, host, upkeep)]
    severities = dict(about_others)
    assert {(alert, severities[alert]) for alert in SCENARIOS}.union(*written) == about_others


RUNBOOK = (CHECKOUT / "docs/runbook.md").read_text()


def test_every_alert_has_a_heading_in_the_runbook() -> None:
    headings = re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE)
    assert sorted(headings) == sorted({rule["alert"] for rule in _rules()})


def test_the_runbook_says_of_each_alert_what_it_means_and_what_to_do() -> None:
    for section in re.split(r"^### ", RUNBOOK, flags=re.MULTILINE)[1:]:
        parts = re.findall(
            r"^(?:\*\*([A-Z]\w+)|(\d)\.)", re.split(r"^## ", section, flags=re.MULTILINE)[0], re.MULTILINE
        )
        names = [name or number for name, number in parts]
        assert names == ["Means", "Look", "1", "2", "3", "Causes", "Change", "Silence"], section[:40]


def _full_run() -> Run:
    """A run whose trainer logs every signal and a key of its own, with a NaN on the way."""
    run = Run("json_list", "trl", Options(15.0, {name: [name] for name in signals.NAMES}))
    run.take(TotalSteps(1000), Clock(0.0, 0.0, live=True))
    others = ("rewards/format/mean", "rewards/format/std", "env/depth")
    for step in range(1, 71):
        values = dict.fromkeys((*signals.NAMES, *others), 0.5 + step % 7 / 16)
        if step == 50:
            values["grad_norm"] = float("nan")
        run.take(Record(step, values), Clock(float(step), float(step), live=True))
    return run


def _exported() -> str:
    """The page of an exporter with one run that has everything."""
    view = View("a", _full_run(), "running", writer=True)
    health = Health()
    health.files["log"] += 1
    health.targets.append(Polled("http://127.0.0.1:9092/metrics", "prometheus_page", True, 1, 0.0))
    return page([RunText().chunks(view, 70.0)], health.samples()).decode()


def test_metrics_doc_names_every_exported_metric_with_type_and_labels() -> None:
    text = _exported()
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    labels: dict[str, set[str]] = {name: set() for name in types}
    for name, inside in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        labels[name] |= set(re.findall(r'(\w+)="', inside))
    documented = {
        name: (kind, set(re.findall(r"`(\w+)`", named)))
        for name, kind, _, named in DOCUMENTED.findall(RUN_METRICS)
    }
    assert documented == {name: (kind, labels[name]) for name, kind in types.items()}


def test_every_family_is_exported_by_a_run_that_has_everything() -> None:
    assert {family.name for family in FAMILIES} <= _metrics(_exported())


def test_units_in_names_are_those_of_the_metrics_doc() -> None:
    for name, _, unit, _ in DOCUMENTED.findall(RUN_METRICS):
        for ending, wanted in (("_seconds", "seconds"), ("_bytes", "bytes"), ("_ratio", "0 to 1")):
            if name.removesuffix("_total").endswith(ending):
                assert unit == wanted, name


def test_a_run_has_at_most_250_series() -> None:
    lines = [line for line in _exported().splitlines() if line.startswith("rl_")]
    assert len(lines) <= SERIES_LIMIT


@pytest.mark.e2e
def test_a_real_run_has_at_most_250_series(tmp_path: Path) -> None:
    log = replay.REAL_RUNS / "verl_console" / "searchr1_grpo_part1_steps0-149.log"
    if not log.exists():
        lacking(f"there is no {log}")
    with (tmp_path / "samples").open("w+") as out:
        replay.write("a", log, out)
        out.seek(0)
        series = {line.rsplit(" ", 2)[0] for line in out}
    assert 50 < len(series) <= SERIES_LIMIT
