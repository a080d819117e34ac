"""Whether a run hangs or has ended, and how: what its state, its writer and the box say together."""

from __future__ import annotations

from pathlib import Path

from exporter.alert_labels import ONSET_STEP
from stepwatch.rules.subjects import SHOWN_STATE, SHOWN_STATES
from tests.rules import promtool as unit
from tests.rules import rendered
from tests.rules.promtool import Group, Moment
from tests.rules.series import selector

GOOD_CHECKPOINT = "rl_run_good_checkpoint"


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
    unit.check(promtool, unit.write(tmp_path, "checkpoints", _checkpoint_rules(), [group]))


def _checkpoint_rules() -> list[dict[str, str]]:
    return [rule for rule in rendered.recorded("shown") if rule["record"] != SHOWN_STATE]


def test_a_checkpoint_that_was_saved_after_a_warning_that_has_ended_is_not_the_one_to_resume_from(
    promtool: Path, tmp_path: Path
) -> None:
    minutes = 700
    onsets = {  # of KLHigh at step 861, in minutes, and what else is so
        "sick": "_x20 861x4 stale",
        "pending": "_x20 861x4 stale",
        "repeated": "_x20 861x4 stale",  # by another attempt, from the minute 60 on
        "held": "_x62 861x4 stale",  # by keep_firing_for, while another attempt is at step 841
        "both": "_x62 861x4 stale",
        "slow": "_x20 861x4 stale",
    }
    # The last warning that ends is not the first; one of a new attempt, beside an old one that is held.
    drops = dict.fromkeys(("sick", "slow"), "_x20 870x6 stale") | {"both": "_x62 841x4 stale"}
    steps = dict.fromkeys(onsets, f"900x{minutes}") | {
        "repeated": f"900x59 841x9 900x{minutes}",
        "held": f"900x59 841x9 900x{minutes}",
        "both": f"900x59 841x9 900x{minutes}",
    }
    series = {}
    for run, onset in onsets.items():
        about = {"run": run, "alertname": "KLHigh", "severity": "warning"}
        series[selector(ONSET_STEP, **about)] = onset
        state = "pending" if run == "pending" else "firing"
        if drop := drops.get(run):
            other = {**about, "alertname": "RewardDrop"}
            series[selector(ONSET_STEP, **other)] = drop
            series[selector("ALERTS", alertstate=state, topic="reward", **other)] = drop
        series[selector("ALERTS", alertstate=state, topic="kl", **about)] = onset.replace("861", "1")
        later = {**about, "alertname": "KLExplosion", "severity": "critical"}
        series[selector(ONSET_STEP, **later)] = f"_x75 890x{minutes}"
        series[selector("rl_step", run=run)] = steps[run]
        resumed = "0x59 1x700" if run in ("repeated", "held", "both") else f"3x{minutes}"
        series[selector("rl_restarts_total", run=run)] = resumed
        seconds = 73 if run == "slow" else 72
        series[selector("rl_step_interval_typical_seconds", run=run)] = f"{seconds}x{minutes}"
        for step in (840, 861, 880):
            labels = {"run": run, "checkpoint": f"global_step_{step}"}
            series[selector("rl_run_checkpoint_step", **labels)] = f"{step}x{minutes}"
    # The last sample of KLHigh is that of the minute 25 (of "held" and "both": 67), and of RewardDrop 27.
    first = {
        23: {"sick": 861, "pending": 861, "repeated": 861, "held": 900, "both": 900, "slow": 861},
        50: {"sick": 861, "pending": 900, "repeated": 861, "held": 900, "both": 900, "slow": 861},
        72: {"sick": 861, "pending": 900, "repeated": 900, "held": 900, "both": 841, "slow": 861},
        83: {"sick": 861, "pending": 890, "repeated": 890, "held": 890, "both": 841, "slow": 861},
        88: {"sick": 890, "pending": 890, "repeated": 890, "held": 890, "both": 841, "slow": 861},
        383: {"sick": 890, "pending": 890, "repeated": 890, "held": 890, "both": 890, "slow": 861},
        388: {"sick": 890, "pending": 890, "repeated": 890, "held": 890, "both": 890, "slow": 890},
    }
    values = {
        (
            f'sum({GOOD_CHECKPOINT}{{run="{run}",checkpoint="global_step_{840 if step < 880 else 880}"}})',
            60 * minute + 1,
        ): step
        for minute, of in first.items()
        for run, step in of.items()
    } | {(f"count({GOOD_CHECKPOINT})", 60 * minute + 1): len(onsets) for minute in first}
    group = Group("ended", series, [Moment(60 * 400, {"None": []})], values, interval=60)
    unit.check(promtool, unit.write(tmp_path, "ended", _checkpoint_rules(), [group]))
