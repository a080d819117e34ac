"""Limits of overrides, as the run exporter serves them, judge their runs, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from stepwatch.rules.limits import served_overrides
from tests import real
from tests.alerts import configured
from tests.rules import healthy as h
from tests.rules import idle, rendered, variations
from tests.rules import promtool as unit
from tests.rules.cases import Values
from tests.rules.catalogue import RULES
from tests.rules.healthy import HEALTHY
from tests.rules.promtool import Group, Moment
from tests.rules.variations import STALE, Phase

LOOK = 17

OWN, OTHER = "own/a", "other/a"


@pytest.fixture(name="promtool", params=["2.42", "3.13"])
def _promtool(request: pytest.FixtureRequest) -> Path:
    return real.prometheus(request.param).tool


def _own(alerts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"runs": "own/*", "alerts": alerts}]


def _check(
    promtool: Path,
    folder: Path,
    settings: Mapping[str, Any],
    runs: Mapping[str, Values | tuple[Phase, ...]],
    fired: Mapping[tuple[str, str], list[str]],
    *,
    look: float = LOOK,
    asked: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Each of these alerts, by name and severity, fires for just these runs; ``asked``: values by PromQL."""
    config, series = configured.config(settings), dict[str, str]()
    for run, values in runs.items():
        served = configured.served(config, run)
        phases = values if isinstance(values, tuple) else (Phase(0, values),)
        whole = tuple(phase._replace(values={**phase.values, **served}) for phase in phases)
        series |= variations.samples(run, whole, [*HEALTHY, *served], until=look)
    rules = configured.of(settings, *(name for name, _ in fired))
    labels = {
        (rule["alert"], rule["labels"]["severity"]): rule["labels"] for rule in rules if "alert" in rule
    }
    expected: dict[str, list[dict[str, str]]] = {name: [] for name, _ in fired}
    for (name, severity), of in fired.items():
        expected[name] += [{"run": run, **labels[name, severity]} for run in of]
    every = {(expression, look): value for expression, value in asked.items()}
    group = Group("overrides", series, [Moment(look, expected)], every)
    unit.check(promtool, unit.write(folder, "overrides", rules, [group]))


HIGH: Values = {h.KL_MIN: 64, h.KL_MIN_5: 64, h.KL_START: 64}
"""Above an absolute limit of 16, and no higher than at the start."""


@pytest.mark.parametrize(("base", "own", "fired"), [(16, None, [OTHER]), (None, 16, [OWN])])
def test_an_override_takes_a_limit_away_or_sets_one_that_is_null_for_all_others(
    base: int | None, own: int | None, fired: list[str], promtool: Path, tmp_path: Path
) -> None:
    settings = {
        "alerts": {"KL": {"warning": {"above": base}}},
        "overrides": _own({"KL": {"warning": {"above": own}}}),
    }
    _check(promtool, tmp_path, settings, {OWN: HIGH, OTHER: HIGH}, {("KLHigh", "warning"): fired})


def _limit(run: str, condition: str) -> str:
    return f'rl_limit{{alert="KLHigh",run="{run}",condition=~"{condition}"}}'


FIXED = _limit(OWN, "fixed")


@pytest.mark.parametrize(
    ("base", "own", "fixed"),
    [
        (16, None, {f"sum({_limit(OTHER, 'fixed')})": 16, f"count({FIXED} != {FIXED})": 1}),
        (None, 16, {f"sum(absent({_limit(OTHER, 'fixed')}))": 1, f"sum({FIXED})": 16}),
    ],
)
def test_a_limit_is_absent_until_it_can_be_judged_and_nan_where_an_override_takes_it_away(
    base: int | None, own: int | None, fixed: dict[str, float], promtool: Path, tmp_path: Path
) -> None:
    off = {"runs": "off/*", "alerts": {"KL": {"enabled": False}}}
    settings = {
        "alerts": {"KL": {"warning": {"above": base}}},
        "overrides": [off, *_own({"KL": {"warning": {"above": own}}})],
    }
    high: Values = {h.KL_MIN: 2, h.KL_MIN_5: 2}
    runs = {OWN: high, OTHER: high, "new": {**high, h.KL_NOISE: None}, "off/a": high}
    values = {
        **fixed,
        f"sum({_limit(OTHER, 'from its start.*')})": 0.125 + 0.5,
        # Not the smaller one of two of which the other is not known yet.
        f"sum(absent({_limit('new', 'from its start.*')}))": 1,
        f"sum(absent({_limit('off/a', '.*')}))": 1,
    }
    _check(promtool, tmp_path, settings, runs, {("KLHigh", "warning"): [OWN, OTHER]}, asked=values)


def test_an_alert_that_an_override_switches_off_is_off_for_its_runs_alone(
    promtool: Path, tmp_path: Path
) -> None:
    off = {"runs": "own/*", "alerts": {rule.block: {"enabled": False} for rule in RULES}}
    settings = {**rendered.EVERYTHING, "overrides": [off]}
    config, rules, files = configured.config(settings), rendered.rules("rl", settings), []
    for rule in RULES:
        (left,) = rendered.named(rules, rule.alert, rule.severity)
        series: dict[str, str] = {}
        for run in (OWN, "loud/own"):
            served = configured.served(config, run)
            phase = Phase(0, {**rule.conditions[0].sick, **served})
            series |= variations.samples(run, (phase,), [*HEALTHY, *served], until=LOOK)
        fired = [{"run": "loud/own", **left["labels"]}]
        group = Group("off", series, [Moment(LOOK, {rule.alert: fired})])
        files.append(unit.write(tmp_path, str(rule), unit.silently(rendered.whole(left, settings)), [group]))
    unit.check(promtool, *files)


def test_an_override_has_its_own_silence(promtool: Path, tmp_path: Path) -> None:
    own = {"overrides": _own({"Stalled": {"silence": "1m", "intervals": 1}})}
    silent: Values = {h.LAST_STEP_AT: -100}
    _check(promtool, tmp_path, own, {OWN: silent, OTHER: silent}, {("Stalled", "critical"): [OWN]})


def test_the_first_override_that_fits_judges_a_run(promtool: Path, tmp_path: Path) -> None:
    overrides = [
        {"runs": "sft-*", "alerts": {"KL": {"enabled": False}}},
        {"runs": "*-long", "alerts": {"KL": {"critical": {"above_start": 4}}}},
        {"runs": "v1.5-[ab]-*", "alerts": {"KL": {"warning": None, "critical": {"above_start": 8}}}},
    ]
    names = ("sft-a", "sft-long", "ppo-long", "ppo", "v1.5-a-x", "v1.5-a-long", "v1x5-a-x")
    high = ["ppo-long", "ppo", "v1.5-a-long", "v1x5-a-x"]
    for kl, exploded in ((2, ["ppo", "v1x5-a-x"]), (5, high), (9, [*high, "v1.5-a-x"])):
        fired = {("KLHigh", "warning"): high, ("KLExplosion", "critical"): exploded}
        runs = {name: {h.KL_MIN: kl + 0.125, h.KL_MIN_5: kl + 0.125} for name in names}
        _check(promtool, tmp_path, {"overrides": overrides}, runs, fired)


def test_an_override_changes_one_of_two_limits_that_both_must_be_passed(
    promtool: Path, tmp_path: Path
) -> None:
    changed = {"overrides": _own({"KL": {"warning": {"above_start": 0.25}}})}
    little: Values = {h.KL_MIN: 0.125 + 0.375, h.KL_MIN_5: 0.125 + 0.375}  # 6 standard deviations
    runs = {OWN: little, "own/noisy": {**little, h.KL_NOISE: 1}, OTHER: little}
    _check(promtool, tmp_path, changed, runs, {("KLHigh", "warning"): [OWN]})


def test_an_override_switches_a_level_off_and_another_on(promtool: Path, tmp_path: Path) -> None:
    base = {"Reward": {"warning": None}}
    levels = {"KL": {"critical": None}, "Reward": {"warning": {"stddevs": 3}}}
    sick: Values = {h.KL_MIN: 2, h.KL_MIN_5: 2, h.REWARD_DRAWDOWN_5: 0.9}
    fired = {
        ("KLHigh", "warning"): [OWN, OTHER],
        ("KLExplosion", "critical"): [OTHER],
        ("RewardDrop", "warning"): [OWN],
    }
    settings = {"alerts": base, "overrides": _own(levels)}
    _check(promtool, tmp_path, settings, {OWN: sick, OTHER: sick}, fired)


def test_an_alert_that_takes_the_limits_of_another_level_is_off_with_it(
    promtool: Path, tmp_path: Path
) -> None:
    settings = {"overrides": _own({"EntropyExplosion": {"warning": None}})}
    sick: Values = {h.ENTROPY_MIN: 4, h.REWARD_LOST_FAST: 1.5}
    fired = {("EntropyExplosion", "warning"): [OTHER], ("EntropyExplosion", "critical"): [OTHER]}
    _check(promtool, tmp_path, settings, {OWN: sick, OTHER: sick}, fired)


def test_an_override_changes_the_severity(promtool: Path, tmp_path: Path) -> None:
    settings = {"overrides": _own({"Restarting": {"severity": "warning"}})}
    again = (Phase(0, {h.RESTARTS: 0}), Phase(5, {h.RESTARTS: 3}))
    fired = {("Restarting", "warning"): [OWN], ("Restarting", "critical"): [OTHER]}
    _check(promtool, tmp_path, settings, {OWN: again, OTHER: again}, fired)


SAME: Values = {
    h.REWARD_RANGE_20: 0,
    h.REWARD_MAX_20: 1,
    h.REWARD_START: 1,
    h.REWARD_STD: 0,
    h.SAMPLES_RANGE_20: 0,
}
"""The reward is 1 in each of 20 steps, as it was at the start."""


@pytest.mark.parametrize(
    ("base", "own", "fired"),
    [(1.0, None, [OWN]), (None, 1.0, [OTHER]), (2.0, 1.0, [OTHER]), (1.0, 2.0, [OWN])],
)
def test_a_limit_replaces_a_way_to_fire_for_the_runs_that_have_it(
    base: float | None, own: float | None, fired: list[str], promtool: Path, tmp_path: Path
) -> None:
    settings = {
        "alerts": {"NoLearningSignal": {"warning": {"ceiling": base}}},
        "overrides": _own({"NoLearningSignal": {"warning": {"ceiling": own}}}),
    }
    _check(promtool, tmp_path, settings, {OWN: SAME, OTHER: SAME}, {("NoLearningSignal", "warning"): fired})


def test_an_alert_on_how_a_run_ended_stays_off_and_on_while_a_scrape_is_lost(
    promtool: Path, tmp_path: Path
) -> None:
    settings = {
        "alerts": {"RunVanished": {"enabled": False}},
        "overrides": _own({"RunFailed": {"enabled": False}, "RunVanished": {"enabled": True}}),
    }
    failed, vanished = (
        (Phase(0, {h.STATE: state}), Phase(30, {h.STATE: state}, STALE)) for state in ("failed", "vanished")
    )
    runs = {OWN: failed, OTHER: failed, "own/v": vanished, "other/v": vanished}
    fired = {("RunFailed", "critical"): [OTHER], ("RunVanished", "critical"): ["own/v"]}
    _check(promtool, tmp_path, settings, runs, fired, look=77)


def test_an_override_of_idle_gpus_is_for_its_runs_alone(promtool: Path, tmp_path: Path) -> None:
    settings = {
        "alerts": {"GPUIdleWhileRunning": {"below_ratio": 0.001}},
        "overrides": _own({"GPUIdleWhileRunning": {"below_ratio": 0.05}}),
    }
    config = configured.config(settings)
    *limits, rule = configured.of(settings, "GPUIdleWhileRunning")
    series = {
        name.replace(idle.RUN, run): values for run in (OWN, OTHER) for name, values in idle.IDLE.items()
    }
    series |= {limit.of(OWN): f"{value}+0x300" for limit, value in configured.served(config, OWN).items()}
    group = Group("idle", series, [Moment(602, {rule["alert"]: [{"run": OWN, **rule["labels"]}]})])
    unit.check(promtool, unit.write(tmp_path, "idle", [*limits, rule], [group]))


def test_rules_are_as_large_for_two_hundred_overrides_as_for_one() -> None:
    own = {"KL": {"warning": {"above": 16}}, "Reward": {"critical": None}, "Stalled": {"silence": "1m"}}
    one, fifty, many = (
        configured.rules({"overrides": [{"runs": f"{number}-*", "alerts": own} for number in range(count)]})
        for count in (1, 50, 200)
    )
    assert many == fifty == one


def test_of_a_level_that_is_switched_off_nothing_else_is_served() -> None:
    config = configured.config({"overrides": _own({"KL": {"critical": None}, "Stalled": {"intervals": 0}})})
    (served,) = served_overrides(config)
    assert served["limits"] == {"KL": {"critical": 0.0}, "Stalled": {"intervals": 0.0}}
