"""Servers in what trainers print: found in their logs, with their run, while it goes on."""

from __future__ import annotations

import pytest

from exporter.runs.discovery.target_sources import LogTargets
from exporter.runs.discovery.targets import Target
from exporter.runs.signals.record import Servers
from exporter.runs.sources.console import servers
from tests.runs.conftest import Clock, Watched
from tests.runs.lines import append, console, measured, verl_json

A, B, C = "10.0.0.7:41233", "10.0.0.8:40001", "[fd00::9]:42000"
VERL = f"LLMServerManager: ['{A}', '{C}']"
SLIME = "Router launched at 10.0.0.7:3512, Prometheus port: 4711"


@pytest.mark.parametrize(
    ("line", "addresses"),
    [
        (VERL, (A, C)),
        (f"AgentLoopManager: ['{A}']", (A,)),
        (f"AgentLoopManager Hybrid: ['{A}', '{C}']", (A, C)),
        (f"DynamoLLMServerManager: ['{A}']", (A,)),
        (f"(TaskRunner pid=48213) {VERL}", (A, C)),
        (f"\x1b[36m(TaskRunner pid=48213, ip=10.0.0.7)\x1b[0m {VERL}", (A, C)),
        (f"\x1b[36m(TaskRunner pid=1)\x1b[0m {VERL}\x1b[32m [repeated 2x across cluster]\x1b[0m", (A, C)),
        (f"Training Progress:   0%|  | 0/435 [00:00<?, ?it/s]{VERL}", (A, C)),
        (f"Training Progress:   0%|  | 0/435 [00:00<?, ?it/s]\r{VERL}\r", (A, C)),
        (f"{VERL[:-6]}", (A,)),
        (f"[2026-08-21 10:11:12] rollout.py:910 - {SLIME}", ("10.0.0.7:3512",)),
        (f"\x1b[36m(RolloutManager pid=7)\x1b[0m {SLIME}", ("10.0.0.7:3512",)),
        ("SGLang router launched at 10.0.0.7:3512", ("10.0.0.7:3512",)),
        ("Router launched at [fd00::9]:3512", ("[fd00::9]:3512",)),
    ],
)
def test_a_line_reports_servers_whatever_stands_around_it(line, addresses):
    path = "/engine_metrics" if "outer" in line else "/metrics"

    assert servers(line.encode()) == Servers(addresses, path)


@pytest.mark.parametrize(
    "line",
    [
        "LLMServerManager: []",
        "LLMServerManager: [None]",
        "LLMServerManager: 4 servers",
        "RewardLoopManager: ['10.0.0.7:1']",
        "Reward router launched at 10.0.0.7:1",
        "router launched at node-1:80",
        f"no-{VERL}",
        "step:12 - critic/score/mean:0.5",
    ],
)
def test_other_lines_do_not(line):
    assert servers(line.encode()) is None


@pytest.fixture(name="source")
def _source(allowlist):
    return LogTargets(allowlist)


@pytest.fixture(name="folder")
def _folder(tmp_path):
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture(name="watched")
def _watched(folder, source, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("exporter.runs.collector.time", clock)
    watched = Watched(clock, folder)
    watched.watch.listeners.append(source.update)
    return watched


def reported(source):
    return {target.address: (target.labels.get("run"), target.over) for target in source.targets()}


def test_servers_are_found_with_their_run_and_the_resumed_runs_replace_them(watched, source, folder):
    append(folder / "ppo.log", f"(TaskRunner pid=1) {VERL}\n", console(1, measured(1)))
    watched.discover()
    assert reported(source) == {A: ("ppo", False), C: ("ppo", False)}

    append(folder / "ppo.log", f"LLMServerManager: ['{B}']\n", f"AgentLoopManager: ['{A}']\n")
    watched.look(1)
    assert reported(source) == {B: ("ppo", False), A: ("ppo", False)}
    append(folder / "ppo.log", console(2, measured(2)))
    watched.look(1)
    assert reported(source) == {B: ("ppo", False), A: ("ppo", False)}


def test_servers_are_found_before_the_first_step_still_without_a_run(watched, source, folder):
    append(folder / "ppo.log", "loading\n" * 3000, f"{VERL}\n", "loading\n" * 3000)
    watched.discover()
    assert reported(source) == {A: (None, False), C: (None, False)}

    append(folder / "ppo.log", console(1, measured(1)))
    watched.look(3)
    assert reported(source) == {A: ("ppo", False), C: ("ppo", False)}


def test_a_log_that_restarts_before_its_first_step_reports_new_servers(watched, source, folder):
    append(folder / "ppo.log", f"{VERL}\n")
    watched.discover()
    (folder / "ppo.log").write_text(f"LLMServerManager: ['{B}']\n")
    watched.look(3)

    assert reported(source) == {B: (None, False)}


def test_the_console_of_a_run_that_its_json_lines_show_reports_its_servers(watched, source, folder):
    steps = [(step, measured(step)) for step in range(1, 12)]
    (folder / "ppo").mkdir()
    (folder / "ppo" / "console.log").write_text(f"{VERL}\n" + "".join(console(*step) for step in steps))
    (folder / "ppo" / "metrics.jsonl").write_text("".join(verl_json(*step) for step in steps))
    watched.discover()
    (view,) = watched.watch._shown.views.values()

    assert view.run.source == "verl_jsonl"
    assert view.duplicates
    assert reported(source) == {A: (view.name, False), C: (view.name, False)}


def test_of_an_address_that_two_runs_had_the_one_that_goes_on_counts_last(watched, source, folder):
    for name, reward in (("a", 0.1), ("b", 0.5)):
        append(folder / f"{name}.log", f"LLMServerManager: ['{A}']\n", console(1, measured(1, reward=reward)))
    watched.discover()
    append(folder / "b.log", "Final validation metrics: {}\n")
    watched.look(1)

    assert [(target.labels["run"], target.over) for target in source.targets()] == [("b", True), ("a", False)]


def test_a_router_of_slime_is_asked_for_the_metrics_of_its_engines(watched, source, folder):
    line = "[2026-08-21 10:11:12] train_metric_utils.py:135 - rollout 11: {'rollout/raw_reward': 0.53}\n"
    append(folder / "slime.log", f"[2026-08-21 10:11:12] rollout.py:910 - {SLIME}\n", line)
    watched.discover()

    assert list(source.targets()) == [
        Target(
            "10.0.0.7:3512",
            {"job": "rollout", "role": "rollout", "run": "slime"},
            "/engine_metrics",
            "log",
        )
    ]


def test_addresses_that_are_not_allowed_are_counted_once_and_not_at_each_look(
    watched, source, folder, allowlist, logged
):
    append(folder / "ppo.log", f"LLMServerManager: ['{A}', '8.8.8.8:80']\n", console(1, measured(1)))
    for _ in range(3):
        watched.discover()
        assert reported(source).keys() == {A}

    assert allowlist.counts == {("log", "address"): 1}
    assert "ppo: 8.8.8.8:80 is in none" in logged[0]


def test_lines_without_end_fill_no_memory(watched, source, folder):
    lines = (f"LLMServerManager: ['10.0.{n // 250}.{n % 250}:80']\n" for n in range(500))
    append(folder / "ppo.log", *lines, console(1, measured(1)))
    watched.discover()

    assert len(reported(source)) == 100
