"""Overrides of config.yaml: the first that fits a run judges it, and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo import OVERRIDES
from tests.alerts import configured
from tests.rules import healthy as h
from tests.rules import promtool as unit
from tests.rules import rendered, variations
from tests.rules.cases import Values
from tests.rules.catalogue import RULES
from tests.rules.healthy import HEALTHY
from tests.rules.promtool import Group, Moment
from tests.rules.variations import Phase

LOOK = 17


def _served(settings: Mapping[str, Any], run: str, values: Values, *, until: float = LOOK) -> dict[str, str]:
    """What the run exporter serves of a run with these values, limits of overrides included."""
    own = configured.served(rendered.config(settings), run)
    return variations.samples(run, (Phase(0, {**values, **own}),), [*HEALTHY, *own], until=until)


def _check(
    promtool: Path,
    folder: Path,
    settings: Mapping[str, Any],
    runs: Mapping[str, Values],
    fired: Mapping[str, list[str]],
) -> None:
    """Each alert fires for just these runs when the rules are rendered with these settings."""
    rules = rendered.rules("rl", {**rendered.EVERYTHING, **settings})
    labels = {rule["alert"]: rule["labels"] for rule in rules}
    series: dict[str, str] = {}
    for run, values in runs.items():
        series |= _served(settings, run, values)
    expected = {alert: [{"run": run, **labels[alert]} for run in of] for alert, of in fired.items()}
    group = Group("overrides", series, [Moment(LOOK, expected)])
    unit.check(promtool, unit.write(folder, "overrides", unit.silently(rules), [group]))


def test_an_alert_that_an_override_switches_off_is_off_for_its_runs_alone(
    promtool: Path, tmp_path: Path
) -> None:
    off = {"runs": "quiet/*", "alerts": {rule.block: {"enabled": False} for rule in RULES}}
    settings = {**rendered.EVERYTHING, "overrides": [off]}
    rules = rendered.rules("rl", settings)
    files = []
    for rule in RULES:
        left = rendered.named(rules, rule.alert, rule.severity)
        series: dict[str, str] = {}
        for run in ("quiet/a", "loud/quiet"):
            series |= _served(settings, run, rule.conditions[0].sick)
        fired = [{"run": "loud/quiet", **each["labels"]} for each in left]
        group = Group("off", series, [Moment(LOOK, {rule.alert: fired})])
        files.append(unit.write(tmp_path, str(rule), unit.silently(left), [group]))
    unit.check(promtool, *files)


def test_the_first_override_that_fits_judges_a_run(promtool: Path, tmp_path: Path) -> None:
    overrides = [
        {"runs": "sft-*", "alerts": {"KL": {"enabled": False}}},
        {"runs": "*-long", "alerts": {"KL": {"critical": {"above_start": 4}}}},
        {"runs": "v1.5-[ab]-*", "alerts": {"KL": {"warning": None, "critical": {"above_start": 8}}}},
    ]
    names = ("sft-a", "sft-long", "ppo-long", "ppo", "v1.5-a-x", "v1.5-a-long", "v1x5-a-x")
    kl_2 = {name: {h.KL_MIN: 2 + 0.125} for name in names}
    fired = {"KLHigh": ["ppo-long", "ppo", "v1.5-a-long", "v1x5-a-x"], "KLExplosion": ["ppo", "v1x5-a-x"]}
    _check(promtool, tmp_path, {"overrides": overrides}, kl_2, fired)
    kl_5 = {name: {h.KL_MIN: 5 + 0.125} for name in names}
    fired = {**fired, "KLExplosion": ["ppo-long", "ppo", "v1.5-a-long", "v1x5-a-x"]}
    _check(promtool, tmp_path, {"overrides": overrides}, kl_5, fired)
    kl_9 = {name: {h.KL_MIN: 9 + 0.125} for name in names}
    fired = {**fired, "KLExplosion": ["ppo-long", "ppo", "v1.5-a-x", "v1.5-a-long", "v1x5-a-x"]}
    _check(promtool, tmp_path, {"overrides": overrides}, kl_9, fired)


def test_an_override_leaves_the_limits_that_it_does_not_name(promtool: Path, tmp_path: Path) -> None:
    override = {"runs": "noisy", "alerts": {"Reward": {"critical": {"stddevs": 8}}}}
    fall = {h.REWARD_DRAWDOWN_5: 1.5}  # 6 noises, and 75 % of the best
    small = {h.REWARD_DRAWDOWN_5: 0.5, h.REWARD_NOISE: 0.03125}  # 16 noises, but 25 % of the best
    runs = {"noisy": fall, "other": fall}
    _check(promtool, tmp_path, {"overrides": [override]}, runs, {"RewardCollapse": ["other"]})
    _check(promtool, tmp_path, {"overrides": [override]}, {"noisy": small}, {"RewardCollapse": []})


def test_an_alert_has_the_same_labels_by_the_limits_of_an_override(promtool: Path, tmp_path: Path) -> None:
    override = {"runs": "{{a}}-?", "alerts": {"KL": {"warning": {"above_start": 0.25}}}}
    rules = rendered.rules("rl", {"overrides": [override]})
    series: dict[str, str] = {}
    for run in ("{{a}}-1", "b"):
        series |= _served({"overrides": [override]}, run, {h.KL_MIN: 1})
    fired = [{"run": run, "severity": "warning", "topic": "kl"} for run in ("{{a}}-1", "b")]
    group = Group("override", series, [Moment(LOOK, {"KLHigh": fired})])
    unit.check(promtool, unit.write(tmp_path, "override", unit.silently(rules), [group]))


def test_stalled_of_an_override_has_its_own_silence(promtool: Path, tmp_path: Path) -> None:
    override = {"runs": "demo*", "alerts": {"Stalled": {"silence": "1m", "intervals": 1}}}
    silent = {h.LAST_STEP_AT: -100}
    runs = {"demo": silent, "ppo": silent}
    _check(promtool, tmp_path, {"overrides": [override]}, runs, {"Stalled": ["demo"]})


def test_absolute_kl_limit_needs_neither_start_nor_noise(promtool: Path, tmp_path: Path) -> None:
    settings = {"alerts": {"KL": {"critical": {"above": 15}}}}
    high = {h.KL_START: 15, h.KL_NOISE: 100}
    runs: dict[str, Values] = {
        "at 15": {**high, h.KL_MIN: 15},
        "above 15": {**high, h.KL_MIN: 15.01},
        "above 15 before there is a start": {h.KL_MIN: 16, h.KL_START: None, h.KL_NOISE: None},
        "far above the start": {h.KL_MIN: 2},
        "above 15 but finished": {**high, h.KL_MIN: 16, h.STATE: "finished"},
    }
    fired = ["above 15", "above 15 before there is a start", "far above the start"]
    _check(promtool, tmp_path, settings, runs, {"KLExplosion": fired, "KLHigh": ["far above the start"]})


def test_a_level_that_is_off_leaves_the_other(promtool: Path, tmp_path: Path) -> None:
    settings = {"alerts": {"Reward": {"critical": None}, "NonFinite": {"warning": None}}}
    rules = rendered.rules("rl", settings)
    assert "RewardCollapse" not in {rule["alert"] for rule in rules}
    assert [rule["labels"]["severity"] for rule in rules if rule["alert"] == "NonFinite"] == ["critical"]
    runs: dict[str, Values] = {
        "one NaN": {h.STREAKS[0]: 1},
        "three": {h.STREAKS[0]: 3},
        "falls": {h.REWARD_DRAWDOWN_5: 2},
    }
    _check(promtool, tmp_path, settings, runs, {"NonFinite": ["three"], "RewardDrop": ["falls"]})


def test_the_demos_hanging_run_stalls_after_a_minute_and_others_after_ten(
    promtool: Path, tmp_path: Path
) -> None:
    rules = rendered.rules("rl", {"overrides": OVERRIDES})
    until, hangs = 1000, {h.LAST_STEP_AT: 0, h.STEP_INTERVAL: 0.3}
    series: dict[str, str] = {}
    for run in ("demo/hangs", "ppo/demo/hangs"):
        series |= _served({"overrides": OVERRIDES}, run, hangs, until=until)
    stalled = {"severity": "critical", "topic": "progress"}
    demo, other = ({"run": run, **stalled} for run in ("demo/hangs", "ppo/demo/hangs"))
    moments = {77: [], 82: [demo], 617: [demo], 622: [demo, other]}
    group = Group("shipped", series, [Moment(at, {"Stalled": fired}) for at, fired in moments.items()])
    unit.check(promtool, unit.write(tmp_path, "shipped", unit.silently(rules), [group]))
