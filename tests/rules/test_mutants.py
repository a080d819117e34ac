"""The cases notice when a rule is wrong: in a comparison, a word, a number or a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import real
from tests.rules import gpu, mutants, rendered, states, variations
from tests.rules import promtool as unit
from tests.rules.cases import Rule
from tests.rules.catalogue import RULES
from tests.rules.promtool import Group
from tests.rules.stack import SCENARIOS
from tests.rules.test_around import AROUND

JsonObject = dict[str, Any]

UNCHANGED = "unchanged"
"""Passes, or the cases would notice nothing."""

SAME = {
    ("RuleFailures", "> [0]  -> 0.01"): "counters rise by whole numbers",
    ("NotificationFailures", "> [0]  -> 0.01"): "counters rise by whole numbers",
    ("GPUXid", "> [0]  -> 0.01"): "counters rise by whole numbers",
    ("GPUXid", '"} [[1h]] ) -> [2h]'): "what is older than an hour was there in the hour before",
    ("GPUXid", "(sum_over_time(up [[1h]] )) -> [2h]"): "the same",
    ("EngineGone", "[2h])) > [0] ) -> 0.01"): "changes are counted in whole numbers",
    ("RayNodeLost", "[2h])) > [0] ) -> 0.01"): "changes are counted in whole numbers",
    ("EngineQueue", "sglang_num_queue_reqs) > [0]  -> 0.01"): "requests are whole",
    ("EngineKVCacheFull", "sglang_num_queue_reqs) > [0]  -> 0.01"): "requests are whole",
    ("RayWorkerOOM", "> [0]  -> 0.01"): "counters rise by whole numbers",
    ("RayWorkerOOM", "over_time(ray_memory_manager_worker_eviction_total [[1h]] ) -> [2h]"): (
        "what is older than an hour was there in the hour before"
    ),
    ("RayWorkerOOM", "(sum_over_time(up [[1h]] )) -> [2h]"): "the same",
    ("HostMemory", "14400)) [<] 0 -> <="): "a line is never exactly at 0",
    ("HostMemory", "14400)) < [0]  -> 0.01"): "nor so close to it",
    ("SeriesLimit", "> [0]  -> 0.01"): "counters rise by whole numbers",
    ("TSDBFailures", "> [0]  -> 0.01"): "counters rise by whole numbers",
    ("TSDBNearLimit", "> [0] ) > 0.9 -> 0.01"): "bytes are whole",
    ("Watchdog", "vector( [1] )"): "it fires whatever its value is",
    (
        "RunStopped",
        '(rl_run_state{state="stopped"}[10m])) == 1 and on  -> max',
    ): "the first condition decides",
    ("RunStopped", '(rl_run_state{state="stopped"} [[10m]] )) == 1 and on () ( -> [20m]'): "the same",
    ("RunStopped", "[last_over_time] (rl_run_writer_present[10m])) == 0 -> min"): (
        "a run whose writer came back is running"
    ),
    ("RunStopped", "(rl_run_writer_present [[10m]] )) == 0 -> [20m]"): "its state is forgotten as soon",
}
"""Changes that make no difference, by a part of what is changed, with the reason."""


def _survivors(folder: Path, right: JsonObject, stages: list[list[Group]]) -> list[str]:
    """The changes with which the cases of all stages, quick ones first, still pass."""
    tool = real.prometheus("3.13").tool
    wrong = {UNCHANGED: right, **dict(mutants.of(right))}
    for groups in stages:
        files = [
            unit.write(folder, f"{number}", unit.silently([rule]), groups)
            for number, rule in enumerate(wrong.values())
        ]
        passed = unit.passing(tool, *files)
        wrong = {what: wrong[what] for what, file in zip(wrong, files, strict=True) if file in passed}
    return [what for what in wrong if not _same(right["alert"], what)]


def _same(alert: str, what: str) -> bool:
    return any(alert == rule and part in what for rule, part in SAME)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_change_of_a_rule_about_runs_is_noticed(rule: Rule, tmp_path: Path) -> None:
    right = rendered.rule(rule.alert, rule.severity)
    stages = [[variations.still("limits", rule, right, variations.limits(rule))]]
    if rule.alert in states.ALERTS:
        stages.append([group.about(rule.alert) for group in states.quick()])
    stages.append([variations.over_time(rule, right)])
    if rule.alert in states.ALERTS:
        stages.append([group.about(rule.alert) for group in states.lasting()])
    assert _survivors(tmp_path, right, stages) == [UNCHANGED]


@pytest.mark.parametrize("alert", SCENARIOS)
def test_every_change_of_a_rule_about_the_stack_is_noticed(alert: str, tmp_path: Path) -> None:
    (right,) = [rule for rule in rendered.rules("stack") if rule["alert"] == alert]
    groups = [scenario.group(alert, right["labels"]) for scenario in SCENARIOS[alert]]
    assert _survivors(tmp_path, right, [groups]) == [UNCHANGED]


@pytest.mark.parametrize("rule", gpu.SCENARIOS, ids="-".join)
def test_every_change_of_a_rule_about_gpus_is_noticed(rule: tuple[str, str], tmp_path: Path) -> None:
    right = rendered.rule(*rule, group="gpu")
    groups = [scenario.group(rule[0], right["labels"]) for scenario in gpu.SCENARIOS[rule]]
    assert _survivors(tmp_path, right, [groups]) == [UNCHANGED]


@pytest.mark.parametrize("rule", AROUND, ids="-".join)
def test_every_change_of_a_rule_about_what_is_around_the_runs_is_noticed(
    rule: tuple[str, str, str], tmp_path: Path
) -> None:
    group, alert, severity = rule
    right = rendered.rule(alert, severity, group)
    stages = [[scenario.group(alert, right["labels"])] for scenario in AROUND[rule]]
    assert _survivors(tmp_path, right, stages) == [UNCHANGED]
