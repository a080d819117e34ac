"""The rules on real runs: the sick are told of in time, the healthy are left alone."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import yaml

from exporter.runs.contract import NOT_FINITE_SIGNALS
from tests.lacking import lacking
from tests.real import PrometheusServer
from tests.rules import rendered, replay, states
from tests.rules.promtool import INTERVAL

pytestmark = pytest.mark.e2e

LABELS = replay.REAL_RUNS / "labels.yaml"
RESOLVES = re.compile(r"must resolve by record (\d+)")
RUNS = re.compile(r"(\d+) runs")

HACKED = {
    "jsonl/tinker_leetcode_llama1b_easy_reward_hacking.jsonl": "reward/correctness_f",
    "jsonl/tinker_leetcode_llama3b_easy_llmjudge_long.jsonl": "reward/f",
}
NOT_HACKED = {
    "tfevents/events.out.tfevents.1761072235.grpo_vl_improving": "train/rewards/mc_idx_reward/mean",
    "tfevents/events.out.tfevents.1761134743.grpo_vl_entropy_collapse": "train/rewards/mc_idx_reward/mean",
    "trl_console/unsloth_grpo_gradnorm_nan_until_step20.log": "rewards/check_answer/mean",
    "trl_state/xling_grpo_50_trainer_state.json": "rewards/r1_correctness",
}
"""Logs of several rewards, with the key of the one that cannot be gamed."""

TEACHER = "actor/reward_kl_penalty"
DISTILLED = {
    "verl_console/opd_f6sves9c_flat_52steps.log": False,
    "verl_console/opd_ry3hgbx5_healthy_180steps.log": False,
    "verl_console/opd_gjvwlq13_length_and_reward_collapse.log": True,
}
"""Distillation runs, of which the KL is to a teacher, and whether it explodes."""

NAMED: dict[str, dict[str, list[str]]] = {
    **{log: {"true_reward": [key]} for log, key in {**HACKED, **NOT_HACKED}.items()},
    **{log: {"kl_teacher": [TEACHER]} for log in DISTILLED},
}


def _with_names(log: str) -> str:
    """The name of a log that is read once more, with its user's names for what it holds."""
    return f"{log} with names"


def _labels() -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load(LABELS.read_text())) if LABELS.exists() else {}


def _labelled(verdict: str) -> list[str]:
    return [log for log, label in _labels().items() if label["verdict"] == verdict]


class Fired(NamedTuple):
    """A rule that held for a run, at these of its records (the first record is 1)."""

    alert: str
    severity: str
    topic: str
    run: str
    records: tuple[int, ...]


@dataclass
class Verdicts:
    """What the logs hold: each log's runs with their records, and what fired for them.

    ``broken`` is at which records a signal was NaN or Inf, for each signal that ever was.
    """

    runs: dict[str, dict[str, int]] = field(default_factory=dict)
    fired: dict[str, list[Fired]] = field(default_factory=dict)
    broken: dict[str, list[set[int]]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """Every rule about what a run logs, evaluated by Prometheus at each record of each run."""
    if not LABELS.exists():
        lacking(f"there is no {LABELS}")
    folder = tmp_path_factory.mktemp("replay")
    (folder / "prometheus.yml").write_text("global: {}\n")
    found = Verdicts()
    with (folder / "samples").open("w") as out:
        for name in _labels():
            found.runs[name] = replay.write(name, replay.REAL_RUNS / name, out)
        for log, keys in NAMED.items():
            name = _with_names(log)
            found.runs[name] = replay.write(name, replay.REAL_RUNS / log, out, keys)
        out.write("# EOF\n")
    server = PrometheusServer("3.13", folder, options=("--storage.tsdb.retention.time=100y",))
    command = [server.tool.tool, "tsdb", "create-blocks-from", "openmetrics", "-q"]
    subprocess.run([*command, folder / "samples", server.folder / "data"], check=True)
    with server:
        for rule in rendered.rules("rl", {}):
            name, severity, topic = rule["alert"], rule["labels"]["severity"], rule["labels"]["topic"]
            if name not in states.ALERTS:
                for log, run, records in _held(server.url, rule["expr"], found.runs):
                    found.fired.setdefault(log, []).append(Fired(name, severity, topic, run, records))
        for signal in NOT_FINITE_SIGNALS:
            broken = f"rl_{signal} != rl_{signal} or abs(rl_{signal}) == Inf"
            for log, _, records in _held(server.url, broken, found.runs):
                found.broken.setdefault(log, []).append(set(records))
    return found


def _held(
    url: str, expression: str, runs: dict[str, dict[str, int]]
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Log, run and records at which the expression holds."""
    logs = {run: (log, count) for log, inside in runs.items() for run, count in inside.items()}
    last = replay.START + INTERVAL * max(count for _, count in logs.values())
    asked = {"query": expression, "start": replay.START, "end": last, "step": INTERVAL}
    with urllib.request.urlopen(
        f"{url}/api/v1/query_range", urllib.parse.urlencode(asked).encode()
    ) as answer:
        results = json.load(answer)["data"]["result"]
    for result in results:
        run = result["metric"]["run"]
        log, count = logs[run]
        at = ((int(time) - replay.START) // INTERVAL for time, _ in result["values"])
        # for some minutes Prometheus shows the last sample of a run that has no more
        if records := tuple(record for record in at if record <= count):
            yield log, run, records


def test_real_runs_are_there() -> None:
    if not LABELS.exists():
        lacking(f"there is no {LABELS}")
    assert len(_labels()) >= 56


@pytest.mark.parametrize("log", _labels())
def test_each_log_has_its_runs_and_a_page_of_another_program_has_none(log: str, verdicts: Verdicts) -> None:
    several = RUNS.search(_labels()[log].get("note", ""))
    usual = 0 if log.endswith(".prom") else 1
    assert len(verdicts.runs[log]) == (int(several[1]) if several else usual)


@pytest.mark.parametrize("log", _labels())
def test_verdict_on_a_real_log(log: str, verdicts: Verdicts) -> None:
    label, fired = _labels()[log], verdicts.fired.get(log, [])
    expected = [each for each in fired if each.alert in label.get("expect", ())]
    in_time = [each for each in expected if each.records[0] <= label["by"]]
    if "expect" in label:
        assert in_time, fired
    if label.get("page"):
        assert "critical" in {each.severity for each in in_time}, fired
    if resolves := RESOLVES.search(label.get("note", "")):
        assert max(each.records[-1] for each in expected) <= int(resolves[1])
    assert _false(label["verdict"], fired) == []


def _false(verdict: str, fired: list[Fired]) -> list[Fired]:
    """What must not fire on such a run."""
    match verdict:
        case "healthy":
            return fired
        case "flat":
            return [each for each in fired if each.severity == "critical"]
        case "nan":
            return [each for each in fired if each.alert != "NonFinite"]
        case "borderline":
            return [each for each in fired if each.severity == "critical" and each.topic == "reward"]
        case "other":
            return [each for each in fired if each.topic == "reward"]
    return []


@pytest.mark.parametrize("log", _labelled("nan"))
def test_nan_is_a_warning_and_critical_where_three_in_a_row_stand_in_the_log(
    log: str, verdicts: Verdicts
) -> None:
    at = {each.severity: set(each.records) for each in verdicts.fired[log]}
    broken = verdicts.broken[log]
    assert at["warning"] == set().union(*broken)
    assert at["critical"] == {last for each in broken for last in each if {last - 1, last - 2} <= each}


def test_on_flat_runs_one_warning_at_most_is_about_anything_but_the_reward(verdicts: Verdicts) -> None:
    others = [
        (log, each)
        for log in _labelled("flat")
        for each in verdicts.fired.get(log, [])
        if each.alert != "RewardStagnation"
    ]
    assert len(others) <= 1, others


def _fired_with_names(alert: str, verdicts: Verdicts) -> dict[str, int]:
    """The first record at which an alert fires, of each log that is read with its user's names."""
    logs = {_with_names(log): log for log in NAMED}
    return {
        logs[log]: each.records[0]
        for log, fired in verdicts.fired.items()
        for each in fired
        if log in logs and each.alert == alert
    }


def test_hacking_is_suspected_where_the_true_reward_is_named_and_stays_behind(verdicts: Verdicts) -> None:
    suspected = _fired_with_names("RewardHackSuspect", verdicts)

    assert suspected.keys() == HACKED.keys()
    assert all(suspected[log] <= 40 for log in HACKED), suspected


def test_no_log_is_suspected_of_hacking_while_nothing_true_is_named(verdicts: Verdicts) -> None:
    fired = {each.alert for log in _labels() for each in verdicts.fired.get(log, [])}

    assert "RewardHackSuspect" not in fired


def test_a_policy_that_leaves_its_teacher_is_told_of_and_no_other(verdicts: Verdicts) -> None:
    moved = _fired_with_names("KLTeacherHigh", verdicts)

    assert moved.keys() == {log for log, explodes in DISTILLED.items() if explodes}
