"""The rules on real runs: the sick are reported in time, the healthy are left alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean

import pytest

from stepwatch.backtest.judge import Judged
from stepwatch.backtest.replay import Progress
from stepwatch.config import Config
from tests.judge import real_logs, stopping
from tests.judge.conftest import Broken, Runs
from tests.judge.labels import Label, labels
from tests.judge.score import Score, Verdict, false, score
from tests.public_logs import needed
from tests.rules import rendered

pytestmark = [pytest.mark.e2e, needed]

RESOLVES = re.compile(r"must resolve by record (\d+)")
TOPICS = {rule["alert"]: rule["labels"]["topic"] for rule in rendered.rules("rl")}

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

by_file = pytest.mark.parametrize("label", labels(), ids=lambda label: label.file)


def _verdict(runs: Sequence[Judged]) -> Verdict:
    return real_logs.of_judged(runs, TOPICS).get(runs[0].files[0], Verdict()) if runs else Verdict()


def test_every_label_has_its_log() -> None:
    assert [label.file for label in labels() if not label.path.is_file()] == []


@by_file
def test_verdict_on_a_real_log(label: Label, judged: tuple[Runs, Broken]) -> None:
    runs = judged[0].get(str(label.path), [])
    verdict = _verdict(runs)
    found: Score = score([label], {str(label.path): verdict}, by_name=True)
    assert (found.late, found.missed, found.not_paged) == ([], [], []), verdict.alarms
    if resolves := RESOLVES.search(label.note):
        expected = [alert.last_record for run in runs for alert in run.alerts if alert.alert in label.expect]
        assert max(expected) <= int(resolves[1])
    assert [alarm for alarm in false(label, verdict.alarms) if alarm.severity == "critical"] == []


def test_false_warnings_stay_below_one_in_5000_steps(judged: tuple[Runs, Broken]) -> None:
    verdicts = {str(label.path): _verdict(judged[0].get(str(label.path), [])) for label in labels()}
    found = score(labels(), verdicts, by_name=True)
    assert found.false_warnings <= 0.2, found.false


def test_actions_stop_sick_runs_early_and_no_healthy_one(judged: tuple[Runs, Broken]) -> None:
    verdicts = {str(label.path): _verdict(judged[0].get(str(label.path), [])) for label in labels()}
    found = list(stopping.saved(labels(), verdicts))
    stopped = [each for each in found if each.stop]

    assert [each.label.file for each in stopped if each.label.verdict in ("healthy", "flat")] == []
    # The other logs that page end within the veto window, or their page does.
    paging = [each for each in found if each.label.page]
    assert len([each for each in paging if each.stop]) >= 0.7 * len(paging)
    # A share of each run: a long one that fails at its end has little to save.
    assert fmean(1 - each.stop.record / each.records for each in stopped if each.stop) > 0.3


@pytest.mark.parametrize(
    "label", [label for label in labels() if label.verdict == "nan"], ids=lambda label: label.file
)
def test_nan_is_a_warning_and_critical_where_three_in_a_row_stand_in_the_log(
    label: Label, judged: tuple[Runs, Broken]
) -> None:
    (run,), broken = judged[0][str(label.path)], judged[1][str(label.path)]
    spans = {alert.severity: (alert.first_record, alert.last_record) for alert in run.alerts}
    anywhere = set().union(*broken)
    three = {last for each in broken for last in each if {last - 1, last - 2} <= each}
    assert spans == {"warning": (min(anywhere), max(anywhere)), "critical": (min(three), max(three))}


def _first(alert: str, logs: Mapping[str, Mapping[str, list[str]]]) -> dict[str, int]:
    """The first record at which an alert fires, of each log that is read with its user's names."""
    found: dict[str, int] = {}
    paths = {label.file: label.path for label in labels()}
    for file, names in logs.items():
        if file not in paths:
            pytest.skip(f"{file} is not among the labelled logs")
        with real_logs.loaded([paths[file]], Config.model_validate({"signals": names})) as backtest:
            (run,) = backtest.results(Progress()).runs
            assert isinstance(run, Judged)
            if records := [each.first_record for each in run.alerts if each.alert == alert]:
                found[file] = min(records)
    return found


def test_hacking_is_suspected_where_the_true_reward_is_named_and_stays_behind() -> None:
    named = {file: {"true_reward": [key]} for file, key in {**HACKED, **NOT_HACKED}.items()}
    suspected = _first("RewardHackSuspect", named)
    assert suspected.keys() == HACKED.keys()
    assert max(suspected.values()) <= 40, suspected


def test_a_policy_that_leaves_its_teacher_is_reported_and_no_other() -> None:
    moved = _first("KLTeacherHigh", {file: {"kl_teacher": [TEACHER]} for file in DISTILLED})
    assert moved.keys() == {file for file, explodes in DISTILLED.items() if explodes}
