"""Whether a run hangs or has ended, and how: what its state, its writer and the box say together."""

from __future__ import annotations

from pathlib import Path

from stepwatch.alerts.model.runs import GOOD_CHECKPOINT, ONSET_STEP, SHOWN_STATE, SHOWN_STATES
from tests.rules import promtool as unit
from tests.rules import rendered, states
from tests.rules.promtool import Group, Moment
from tests.rules.series import selector


def _check(promtool: Path, folder: Path, *groups: Group) -> None:
    rules = [rule for rule in rendered.rules("rl") if rule["alert"] in states.ALERTS]
    unit.check(promtool, unit.write(folder, "states", unit.silently(rules), groups))


def test_silence_without_a_sign_of_life_is_a_stop(promtool: Path, tmp_path: Path) -> None:
    _check(promtool, tmp_path, *states.silent(states.DEAD_WORLDS, alive=False))


def test_silence_with_a_sign_of_life_is_a_hang_unless_the_writer_is_known_to_be_gone(
    promtool: Path, tmp_path: Path
) -> None:
    _check(promtool, tmp_path, *states.silent(states.LIVE_WORLDS, alive=True))


def test_stalled_comes_15_s_after_ten_minutes_and_five_typical_intervals_of_silence(
    promtool: Path, tmp_path: Path
) -> None:
    _check(promtool, tmp_path, states.growing_silent())


def test_a_lost_scrape_turns_no_hang_into_a_stop_and_no_stop_into_a_hang(
    promtool: Path, tmp_path: Path
) -> None:
    _check(promtool, tmp_path, states.not_scraped())


def test_when_the_last_sign_of_life_is_gone_a_hang_becomes_a_stop(promtool: Path, tmp_path: Path) -> None:
    _check(promtool, tmp_path, states.dying_world())


def test_a_run_that_goes_on_is_no_longer_stopped_at_once(promtool: Path, tmp_path: Path) -> None:
    _check(promtool, tmp_path, states.resumed())


def test_a_hang_that_the_exporter_takes_for_a_stop_remains_a_hang_while_the_box_lives(
    promtool: Path, tmp_path: Path
) -> None:
    _check(promtool, tmp_path, states.ending_in_a_live_world())


def test_the_state_that_people_see_is_the_worst_and_stalled_while_the_alert_fires(
    promtool: Path, tmp_path: Path
) -> None:
    known = {
        "failed": [("failed", "a")],
        "vanished": [("vanished", "a")],
        "stopped": [("stopped", "a")],
        "stalled": [("running", "a")],
        "finished": [("finished", "a")],
        "running": [("running", "a")],
        "two exporters": [("running", "a"), ("failed", "b")],
        "stopped and Stalled": [("stopped", "a")],
    }
    series = {
        selector("rl_run_state", run=run, state=state, instance=instance): "1+0x4"
        for run, states in known.items()
        for state, instance in states
    }
    for run in ("stalled", "stopped and Stalled"):
        series[selector("ALERTS", alertname="Stalled", alertstate="firing", run=run)] = "1+0x4"
    pending = selector("ALERTS", alertname="Stalled", alertstate="pending", run="running")
    shown = {
        **{name: name for name in SHOWN_STATES},
        "two exporters": "failed",
        "stopped and Stalled": "stopped",
    }
    values = {
        (f'sum({SHOWN_STATE}{{run="{run}"}})', 11): SHOWN_STATES.index(state) + 1
        for run, state in shown.items()
    }
    (rule,) = (rule for rule in rendered.recorded("shown") if rule["record"] == SHOWN_STATE)
    group = Group("shown", {**series, pending: "1+0x4"}, [Moment(11, {"None": []})], values)
    unit.check(promtool, unit.write(tmp_path, "shown", [rule], [group]))


def test_an_end_that_one_of_two_exporters_saw_is_the_end(promtool: Path, tmp_path: Path) -> None:
    _check(promtool, tmp_path, states.disagreeing())


def test_the_checkpoint_to_resume_from_is_the_last_before_the_first_sign_of_trouble(
    promtool: Path, tmp_path: Path
) -> None:
    series = {selector("rl_step", run=run): "900+0x4" for run in ("sick", "healthy", "slow", "young", "bare")}
    for run in ("sick", "healthy", "slow", "young"):
        for step in (800, 840, 880):
            labels = {"run": run, "checkpoint": f"global_step_{step}"}
            series[selector("rl_run_checkpoint_step", **labels)] = f"{step}+0x4"
    for run, alert, step in (
        ("sick", "KLHigh", 861),
        ("sick", "KLExplosion", 885),
        ("slow", "SlowSteps", 810),
        ("young", "RewardDrop", 790),
    ):
        series[selector(ONSET_STEP, run=run, alertname=alert)] = f"{step}+0x4"
    (rule,) = (rule for rule in rendered.recorded("shown") if rule["record"] == GOOD_CHECKPOINT)
    expected = {
        ("sick", "global_step_840"): 861,
        ("healthy", "global_step_880"): 900,
        ("slow", "global_step_880"): 900,
    }
    values = {
        (f'sum({GOOD_CHECKPOINT}{{run="{run}",checkpoint="{name}"}})', 11): step
        for (run, name), step in expected.items()
    }
    values[f"count({GOOD_CHECKPOINT})", 11] = len(expected)
    group = Group("checkpoints", series, [Moment(11, {"None": []})], values)
    unit.check(promtool, unit.write(tmp_path, "checkpoints", [rule], [group]))
