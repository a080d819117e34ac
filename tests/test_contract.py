"""Exporter, rules, dashboards and docs speak of the same metrics and alerts."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from exporter.engine_client import Client
from exporter.http.routes import Routes
from exporter.http.server import Server
from exporter.runs import alerting_health, signals
from exporter.runs.cli import Settings
from exporter.runs.collector import Collector
from exporter.runs.files.launch import Launch, Retry, SavedStep
from exporter.runs.files.state import State
from exporter.runs.logs.processes import RunGPUs
from exporter.runs.model.exporter_health import Health, Polled, Samples
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.overview.models import Firing, RunId
from exporter.runs.overview.overview import Overview
from exporter.runs.overview.panels import DEFAULT, PanelFile
from exporter.runs.overview.prometheus import Answers
from exporter.runs.sender import Sender
from exporter.runs.serve import metrics
from exporter.runs.serve.metrics import FAMILIES, Override, Overrides, RunText, page
from exporter.runs.serve.views import View
from exporter.runs.signals.key import keys_of
from exporter.runs.signals.record import Record, TotalSteps
from exporter.runs.stats.catalogue import MOST_SERIES, STATISTIC_HELP, STATISTICS, Hold
from exporter.runs.targets.discovery import Discovery
from exporter.runs.targets.registrations import Registrations
from exporter.runs.targets.target import AddressMap, Allowed, Allowlist
from stepwatch.system import http_client
from tests import real
from tests.grafana.queries import dashboard_queries
from tests.real import AlertmanagerServer, PrometheusServer
from tests.real.tools import newest
from tests.real.waiting import eventually
from tests.rules import catalogue, proofs, rendered, selectors, served, variations
from tests.rules import healthy as h
from tests.rules.cases import BELOW, EQUAL, UNTIL
from tests.rules.healthy import STREAKS
from tests.rules.rendered import CHECKOUT
from tests.rules.series import Series

RULES = proofs.rules()
TOPICS = {"reward", "kl", "entropy", "length", "gradient", "progress", "gpu", "rollout", "stack"}
SEVERITIES = {"critical", "warning", "info"}

RUN_METRICS = served.PAGE.partition("\n## The bridge\n")[0]
"""The part of docs/metrics.md about the run exporter."""


def _dashboards() -> Iterator[dict[str, Any]]:
    for path, content in rendered.files().items():
        if path.parts[0] == "grafana" and path.suffix == ".json":
            yield json.loads(content)


def _panel_queries() -> Iterator[str]:
    for dashboard in _dashboards():
        yield from (query.expr for query in dashboard_queries(dashboard, "a", "b"))
        for variable in (each for each in dashboard["templating"]["list"] if each["type"] == "query"):
            yield re.sub(r"(?s)^\w+\((.*?)(?:, \w+)?\)$", r"\1", variable["definition"])


def _rule_queries() -> Iterator[str]:
    for rule in RULES.values():
        yield from (each["expr"] for each in rendered.whole(rule))
        for annotation in rule["annotations"].values():
            yield from selectors.asked(annotation)


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
        for selected in (each.series for each in selectors.selectors(query))
        if _is_statistic(selected)
        for found in _statistics(selected)
    }
    assert used == {(each.metric, frozenset(each.labels.items())) for each in STATISTICS}


SPARING = {h.REWARD_MEAN, h.REWARD_STD, h.HIGHEST_MEDIAN, h.CALLS_5, h.CALLS_START}
"""Statistics by which rules spare runs: an extreme that is held would spare a sick one."""


def test_statistics_are_held_at_the_extreme_that_their_rules_look_for() -> None:
    found: dict[Series, set[Hold]] = {}
    for limit in (each for rule in catalogue.RULES for one in rule.conditions for each in one.limits):
        held = Hold.LOW if limit.fires in (BELOW, UNTIL, EQUAL) else Hold.HIGH
        found.setdefault(limit.series, set()).add(held)
    # Little range at its best spares a run, none at all makes it sick. That some rewards differ is asked of a
    # run without a gradient, and that the reward gained little of one without entropy: partners of a limit.
    for series, partner in (
        (h.REWARD_RANGE_10, Hold.HIGH),
        (h.REWARD_RANGE_20, Hold.HIGH),
        (h.ZERO_STD, Hold.LOW),
        (h.GAIN, Hold.LOW),
    ):
        found[series].remove(partner)
    listed = {Series(each.metric, tuple(each.labels.items())): each.hold for each in STATISTICS}
    wanted = {
        series: {Hold.NONE} if series in SPARING else found.get(series, {Hold.NONE}) for series in listed
    }
    assert {series: {hold} for series, hold in listed.items()} == wanted


def test_every_metric_of_rules_and_panels_is_served_by_someone() -> None:
    used = {
        name
        for query in [*_rule_queries(), *_panel_queries()]
        for selected in selectors.selectors(query)
        for name in served.asked(selected)
    }
    assert used - served.METRICS.keys() == set()


@pytest.mark.e2e
@pytest.mark.parametrize("version", ["2.42", "3.13"])
def test_prometheus_serves_what_rules_ask_it_for(version: str, tmp_path: Path) -> None:
    nobody = "{static_configs: [{targets: ['127.0.0.1:1']}]}"
    port = real.free_port()
    (tmp_path / "prometheus.yml").write_text(
        "global: {evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
        f"alerting: {{alertmanagers: [{nobody}]}}\n"
        f"remote_write: [{{url: 'http://127.0.0.1:{port}/api/v1/write'}}]\n"
    )
    (tmp_path / "rules.yml").write_text("groups: [{name: a, rules: [{alert: a, expr: vector(1)}]}]\n")
    taking = ("--web.enable-remote-write-receiver",)
    _serves(PrometheusServer(version, tmp_path, port=port, options=taking), "Prometheus")


@pytest.mark.e2e
@pytest.mark.parametrize("version", ["0.25", "0.31"])
def test_alertmanager_serves_what_rules_ask_it_for(version: str, tmp_path: Path) -> None:
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: a}\nreceivers: [{name: a}]\n")
    _serves(AlertmanagerServer(version, tmp_path), "Alertmanager")


@pytest.mark.e2e
def test_node_exporter_serves_what_rules_and_panels_ask_it_for() -> None:
    wanted = {name for name in served.FOREIGN["node_exporter"] if "infiniband" not in name}
    address = f"127.0.0.1:{real.free_port()}"
    command = [newest("node_exporter") / "node_exporter", f"--web.listen-address={address}"]
    with real.Server(command, f"http://{address}/"):
        page = http_client.read(f"http://{address}/metrics") or ""

    assert wanted - {name for name, _ in _metrics(page)} == set()


def test_ray_serves_what_rules_and_panels_ask_it_for() -> None:
    at_first_event = {"ray_memory_manager_worker_eviction_total"}
    recorded = _metrics((CHECKOUT / "tests/logs/ray/head.prom").read_text())

    assert served.FOREIGN["Ray"].keys() - {name for name, _ in recorded} == at_first_event


def _serves(server: PrometheusServer | AlertmanagerServer, program: str) -> None:
    """Fail unless the server has all metrics we take it to have, soon: some appear with their first event."""
    wanted = {(name, metric.type) for name, metric in served.FOREIGN[program].items()}
    with server:

        def missing() -> set[tuple[str, str]]:
            return wanted - _metrics(http_client.read(f"{server.url}/metrics") or "")

        eventually(lambda: not missing(), pause=0.2, seen=missing)


def _metrics(text: str) -> set[tuple[str, str]]:
    """Name and type of each."""
    return set(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_an_alert_says_what_it_is_and_where_to_look(rule: dict[str, Any]) -> None:
    assert rule["labels"].keys() == {"severity", "topic"}
    assert rule["labels"]["severity"] in SEVERITIES
    assert rule["labels"]["topic"] in TOPICS
    for name in ("summary", "description", "runbook_url", "dashboard_url"):
        assert rule["annotations"][name]
    assert rule["annotations"]["runbook_url"].endswith(f"#{rule['alert'].lower()}")


def test_every_rule_has_cases() -> None:
    assert RULES.keys() - proofs.cases() == set()


RUNBOOK = (CHECKOUT / "docs/runbook.md").read_text()


def test_every_alert_has_a_heading_in_the_runbook() -> None:
    headings = re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE)
    assert sorted(headings) == sorted({*(rule["alert"] for rule in RULES.values()), alerting_health.ALERT})


def test_the_runbook_says_of_each_alert_what_it_means_and_what_to_do() -> None:
    for section in re.split(r"^### ", RUNBOOK, flags=re.MULTILINE)[1:]:
        parts = re.findall(
            r"^(?:\*\*([A-Z]\w+)|(\d)\.)", re.split(r"^## ", section, flags=re.MULTILINE)[0], re.MULTILINE
        )
        names = [name or number for name, number in parts]
        assert names == ["Meaning", "Impact", "Diagnosis", "1", "2", "3", "Mitigation", "Tuning"], section[
            :40
        ]


def _full_run(*more: str, broken: Collection[str] = ("grad_norm",)) -> Run:
    """A run whose trainer logs every signal, keys of its own and ``more``, with a resume and NaN."""
    run = Run("json_list", "trl", Options(15.0, keys_of({name: [name] for name in signals.NAMES})))
    run.take(TotalSteps(1000), Clock(0.0, 0.0, live=True))
    others = ("rewards/format/mean", "rewards/format/std", "eval_gsm8k_runtime", "env/depth", *more)
    run.mark(1.0, "new data")
    for step in (*range(1, 4), *range(2, 74)):
        values = dict.fromkeys((*signals.NAMES, *others), 0.5 + step % 7 / 16)
        if step == 50:
            values |= dict.fromkeys(broken, float("nan"))
        run.take(Record(step, values), Clock(float(step), float(step), live=True))
    return run


def _exported(run: Run) -> str:
    """The page of an exporter with this run."""
    gpus = RunGPUs((4711,), "086fb401f216-4026531836", ("GPU-3",))
    launch = Launch(1, 1.0, 73.0, exit_code=1, checkpoints=(SavedStep("step_8", 8),))
    view = View("a", run, "running", writer=True, gpus=gpus, launch=launch)
    health = Health()
    health.files["log"] += 1
    health.unstarted = {"ppo/train.log": 1e9}
    health.hung = {"/data": 1e9}
    gate = Allowlist(Allowed())
    gate.note("ray_file", "damaged", "")
    health.others += [Discovery([_Source()], gate, 600.0, AddressMap()).samples, *_of_parts()]
    health.targets.append(Polled("http://127.0.0.1:9092/metrics", "prometheus_page", True, 1, 0.0))
    unread = View("b", Run("verl_console", "", Options()), "running", writer=None, unread=1e9)
    retry = Retry(1, 3, "network error", 90.0)
    waiting = Launch(1, 1.0, 73.0, exit_code=1, held=True, retry=retry, waits=True)
    solved = Run("json_metrics", "nemo_rl", Options())
    for step in range(10):  # and its reward has no known key
        values = {"train/baseline_reward/pct_0": 12.5 + step, "env/correct_rate": step / 10}
        solved.take(Record(step, values), Clock(float(step), float(step), live=True))
    waits = View("c", solved, "running", writer=None, launch=waiting)
    overrides = Overrides([Override.read({"runs": view.name, "limits": {"KL": {"warning.above": 0.5}}})])
    chunks = [RunText(overrides).chunks(each, 73.0) for each in (view, unread, waits)]
    return page(chunks, health.samples()).decode()


def _of_parts() -> Iterator[Samples]:
    """What the other parts of the exporter tell of themselves."""
    watch = Collector(Settings(path=("runs",)))
    table = Registrations(State(None), Allowed())
    server = Server(("127.0.0.1", 0), Routes({}))
    server.answered["200"] = 1
    server.stop()
    nobody = Client("http://127.0.0.1:1")
    # That has no room.
    health = alerting_health.AlertingHealth(nobody, nobody, ["/proc"], {"certificate": "none.pem"})
    health.check()
    yield health.samples
    yield _explodes().samples
    sender = Sender({"url": "http://127.0.0.1:1"}, None)
    yield from (table.samples, watch.registered.samples, server.samples, sender.samples)


def _explodes() -> Overview:
    """What is told of a run whose KL jumps by 2, while an alert about that fires."""
    run = Run("json_list", "trl", Options())
    for step in range(60):
        run.take(Record(step, {"kl": 0.1 + 2.0 * (step > 40)}), Clock(float(step), float(step), live=True))
    view = View("explodes", run, "running", writer=True)
    overview = Overview(lambda: nullcontext([view]), PanelFile(DEFAULT), None)
    alert = Firing("KLExplosion", "critical", "kl", "", "", "", "", "", 2.0, 0.0, step=42)
    overview._prometheus.answers = Answers(firing={RunId("explodes"): (alert,)}, answered=1.0)
    return overview


class _Source:
    """A source of servers that was read once."""

    name, read = "ray_file", 1.0

    def targets(self) -> tuple[()]:
        return ()


def test_a_resume_empties_what_the_cases_of_rules_take_it_to_empty() -> None:
    run = _full_run()
    before = _statistics_on(_exported(run))
    run.take(Record(60, {"reward": 0.5}), Clock(71.0, 71.0, live=True))
    after = _statistics_on(_exported(run))
    assert before.keys() - after.keys() == set(variations.WINDOWS)
    assert {after[streak] for streak in STREAKS} == {0}


def _statistics_on(text: str) -> dict[Series, float]:
    """Every statistic of the run on a page, as cases of rules name it."""
    found = re.findall(r'^(\w+)\{run="a",(signal=.*)\} (\S+)$', text, re.MULTILINE)
    return {
        Series(name, tuple(re.findall(r'(\w+)="([^"]*)"', labels))): float(value)
        for name, labels, value in found
        if name.removeprefix("rl_") in STATISTIC_HELP
    }


def test_metrics_doc_names_every_exported_metric_with_type_and_labels() -> None:
    text = _exported(_full_run())
    types = dict(_metrics(text))
    labels: dict[str, set[str]] = {name: set() for name in types}
    for name, inside in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        labels[name] |= set(re.findall(r'(\w+)="', inside))
    documented = {
        name: (kind, set(re.findall(r"`(\w+)`", named)))
        for name, kind, _, named in served.DOCUMENTED.findall(RUN_METRICS)
    }
    assert documented == {name: (kind, labels[name]) for name, kind in types.items()}


def test_every_family_is_exported_by_a_run_that_has_everything() -> None:
    assert {(family.name, family.type) for family in FAMILIES} <= _metrics(_exported(_full_run()))


def test_what_prometheus_records_for_messages_is_in_the_metrics_doc() -> None:
    section = served.PAGE.partition("\n## Recorded by Prometheus\n")[2].partition("\n## ")[0]
    documented = {name for name, *_ in served.DOCUMENTED.findall(section)}
    ours = (group for group in rendered.groups() if group != "dcgm")

    assert documented == {rule["record"] for group in ours for rule in rendered.recorded(group)}


def test_units_in_names_are_those_of_the_metrics_doc() -> None:
    for name, _, unit, _ in served.DOCUMENTED.findall(RUN_METRICS):
        for ending, wanted in (("_seconds", "seconds"), ("_bytes", "bytes"), ("_ratio", "0 to 1")):
            if name.removesuffix("_total").endswith(ending):
                assert unit == wanted, name


YIELDING = ("rl_nonfinite_steps_total{", "rl_reward_component", "rl_validation_component{", "rl_raw{")
"""What no rule looks at."""


PARTS = [f"rewards/{number}/{kind}" for number in range(20) for kind in ("mean", "std")]
EVERYTHING = (*PARTS, *(f"env/{number}" for number in range(100)))


def test_a_run_has_at_most_270_series_whatever_its_trainer_logs() -> None:
    assert MOST_SERIES == 270
    assert len(_series(_full_run(*EVERYTHING, broken=signals.NAMES))) <= MOST_SERIES


def test_what_no_rule_looks_at_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = {each for each in _series(_full_run()) if not each.startswith(YIELDING)}
    for room in (1, 5, 30, 50):
        monkeypatch.setattr(metrics, "MOST_SERIES", len(needed) + room)
        series = _series(_full_run(*EVERYTHING, broken=signals.NAMES))
        assert len(series) == len(needed) + room
        assert needed <= series


def _series(run: Run) -> set[str]:
    """Each series of a run, without its value."""
    return {
        line.rpartition(" ")[0] for line in _exported(run).splitlines() if re.match(r'rl_\w+{run="a"', line)
    }
