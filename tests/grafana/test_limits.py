"""Limits on the dashboards are those of config.yaml, for the run on show."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwatch.config.alerts import Alerts
from tests.grafana.conftest import Dashboards, Json
from tests.grafana.queries import fill_in
from tests.real import prometheus

# Limits that no panel shows, and why.
NOT_DRAWN = {
    "lost": "a share of the reward that must be lost as well, beside the signal's own limit",
    "steps": "the patience of RewardStagnation, which no curve counts",
    "share_of_run": "the same",
    "gain_lost": "a share of the gain that must be lost as well, beside the limits that are drawn",
    "slow_noises": "the other window of RewardDrop, on a slower mean than is drawn",
    "quick_noises": "the same, on a quicker one",
    "quick_lost": "the same",
    "above_start_when_losing": "what is enough while the reward is lost, on another curve",
    "noises_when_losing": "the same",
    "records": "how many records must have been logged before a rule speaks",
    "solved": "when stagnation and little entropy are no fault",
    "ceiling": "when a reward that is always the same is no fault",
    "spread": "how alike rewards are that teach nothing",
    "truncated_rise": "what makes growth a runaway, on another signal than the length",
}
NOT_SHOWN: dict[tuple[str, ...], str] = {
    ("RewardHackSuspect",): "a gain over the start, where the panel shows levels",
    ("KLSequence",): "per response, where the panel shows nats per token",
    ("RolloutMismatch",): "several measures, of which a run logs one or two",
    ("Staleness",): "no panel shows how old samples are",
    ("CriticDiverged", "warning", "explained"): "no panel shows the explained variance",
    ("SlowSteps", "warning", "times_median"): "no panel shows the time of a token",
}
DRAWN_ALTHOUGH_NAMED_SO = {("Reward", "warning", "lost"), ("Reward", "critical", "lost")}


def limits() -> Iterator[tuple[str, ...]]:
    """The path of every limit about a run's signals."""
    for block, model in Alerts():
        if not model.about_runs:
            continue
        for level in ("warning", "critical"):
            at = getattr(model, level, None)
            if at is not None:
                keys = [(key,) for key, _ in at] if hasattr(at, "plain") else [()]
                yield from ((block, level, *key) for key in keys)
    yield from (("Stalled", "silence"), ("Stalled", "intervals"))


def is_drawn(path: tuple[str, ...]) -> bool:
    if any(path[: len(hidden)] == hidden for hidden in NOT_SHOWN):
        return False
    return path in DRAWN_ALTHOUGH_NAMED_SO or path[-1] not in NOT_DRAWN


DRAWN = [path for path in limits() if is_drawn(path)]


def default_of(path: tuple[str, ...]) -> Any:
    value: Any = Alerts()
    for key in path:
        value = getattr(value, key)
    return value


def other(path: tuple[str, ...]) -> Any:
    """Another value that the limit may have: a little less grave than a warning, more than critical."""
    value = default_of(path)
    if path == ("Stalled", "silence"):
        return "777s"
    if isinstance(value, int) and path[-1] != "above_start":
        return value + 4 if path[1:2] == ("critical",) else max(1, value - 1) if value > 1 else 2
    return 0.777 if value is None else round(value * (1.01 if "critical" in path else 0.99), 4)


def configured(path: tuple[str, ...], value: Any) -> str:
    for key in reversed(path):
        value = {key: value}
    return yaml.safe_dump({"alerts": value})


def numbers(dashboards: dict[str, Json]) -> str:
    """Everything in the dashboards that a limit can be in."""
    panels = dashboards["stepwatch-training"]["panels"]
    return json.dumps(
        [(panel["targets"], panel["fieldConfig"]["defaults"]["thresholds"]) for panel in panels]
    )


@pytest.mark.parametrize("path", DRAWN, ids=".".join)
def test_a_changed_limit_moves_its_line(
    path: tuple[str, ...], dashboards: Dashboards, default: dict[str, Json]
) -> None:
    value = other(path)

    moved = numbers(dashboards(configured(path, value)))

    written = str(value).removesuffix("s")
    assert moved.count(written) > numbers(default).count(written)


@pytest.mark.parametrize("path", [path for path in limits() if not is_drawn(path)], ids=".".join)
def test_limits_that_are_said_not_to_be_drawn_are_not(
    path: tuple[str, ...], dashboards: Dashboards, default: dict[str, Json]
) -> None:
    assert dashboards(configured(path, other(path))) == default


def panel(dashboards: dict[str, Json], title: str, of: str = "training") -> Json:
    return next(each for each in dashboards[f"stepwatch-{of}"]["panels"] if each["title"] == title)


def lines(dashboards: dict[str, Json], title: str, legend: str, of: str = "training") -> list[str]:
    """Expressions of a panel that have this legend."""
    targets = panel(dashboards, title, of)["targets"]
    return [target["expr"] for target in targets if target["legendFormat"] == legend]


def steps(dashboards: dict[str, Json], title: str, of: str = "training") -> list[tuple[str, float | None]]:
    thresholds = panel(dashboards, title, of)["fieldConfig"]["defaults"]["thresholds"]
    return [(step["color"], step["value"]) for step in thresholds["steps"]]


def test_a_limit_that_moves_with_the_run_is_a_dashed_line_in_the_colour_of_its_severity(
    default: dict[str, Json],
) -> None:
    kl = panel(default, "KL")
    letters = {target["refId"]: target["legendFormat"] for target in kl["targets"]}
    lines = {
        letters[each["matcher"]["options"]]: {entry["id"]: entry["value"] for entry in each["properties"]}
        for each in kl["fieldConfig"]["overrides"]
    }

    for alert, colour in (("KLHigh", "orange"), ("KLExplosion", "red"), ("PolicyKLHigh", "orange")):
        assert lines[alert]["color"] == {"mode": "fixed", "fixedColor": colour}
        assert lines[alert]["custom.lineStyle"]["fill"] == "dash"


def test_a_limit_that_is_one_number_is_a_threshold_line(default: dict[str, Json]) -> None:
    assert steps(default, "Entropy") == [("green", None), ("orange", 0.01)]
    assert panel(default, "Entropy")["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"] == {
        "mode": "dashed"
    }


def test_the_optional_absolute_limit_of_the_kl_is_drawn_once_it_is_set(
    dashboards: Dashboards, default: dict[str, Json]
) -> None:
    textbook = dashboards("alerts: {KL: {warning: {above: 10}, critical: {above: 15}}}")

    assert steps(default, "KL") == [("text", None)]
    assert steps(textbook, "KL") == [("green", None), ("orange", 10), ("red", 15)]


@pytest.mark.parametrize("off", ["{critical: null}", "{enabled: false}"])
def test_a_limit_that_is_off_is_not_drawn(dashboards: Dashboards, off: str) -> None:
    rest = dashboards(f"alerts: {{KL: {off}}}")

    assert not lines(rest, "KL", "KLExplosion")
    assert bool(lines(rest, "KL", "KLHigh")) == (off == "{critical: null}")


def test_with_every_alert_off_the_dashboards_still_show_the_run(dashboards: Dashboards) -> None:
    off = {name: {"enabled": False} for name, _ in Alerts()}

    bare = dashboards(yaml.safe_dump({"alerts": off}))

    for each in [*bare["stepwatch-training"]["panels"], *bare["stepwatch-gpu"]["panels"]]:
        assert each["targets"]
        assert all(target["expr"] for target in each["targets"])


def test_limits_of_gpus_are_drawn_on_their_dashboard(
    dashboards: Dashboards, default: dict[str, Json]
) -> None:
    moved = dashboards(
        "alerts: {GPUHot: {margin: 7.5}, GPUMemoryHigh: {enabled: true, above: 0.9},"
        " GPUIdleWhileRunning: {below: 0.2}}"
    )

    assert lines(default, "Temperature", "GPUHot", "gpu")[0].endswith(") - 5")
    assert lines(moved, "Temperature", "GPUHot", "gpu")[0].endswith(") - 7.5")
    assert lines(default, "Memory in use", "GPUMemoryHigh", "gpu") == []
    assert lines(moved, "Memory in use", "GPUMemoryHigh", "gpu")[0].startswith("0.9 * min(")
    assert steps(default, "Utilisation", "gpu") == [("green", None), ("orange", 0.05)]
    assert steps(moved, "Utilisation", "gpu") == [("green", None), ("orange", 0.2)]


def test_limits_of_gpus_that_are_off_are_not_drawn(dashboards: Dashboards) -> None:
    off = dashboards("alerts: {GPUHot: {enabled: false}, GPUIdleWhileRunning: {enabled: false}}")

    assert lines(off, "Temperature", "GPUHot", "gpu") == []
    assert steps(off, "Utilisation", "gpu") == [("text", None)]


def test_idle_gpus_have_the_limit_of_most_runs_whatever_an_override_says(dashboards: Dashboards) -> None:
    override = "overrides: [{runs: a, alerts: {GPUIdleWhileRunning: {below: 0.3}}}]"

    assert steps(dashboards(override), "Utilisation", "gpu") == [("green", None), ("orange", 0.05)]


OVERRIDES = """
overrides:
- runs: ppo/*
  alerts: {KL: {critical: {above_start: 2, above: 3}}, Truncation: {warning: {always_above: 0.97}}}
- {runs: 'sft?', alerts: {KL: {critical: null}}}
- {runs: '*/quiet', alerts: {KL: {enabled: false}}}
"""


def test_a_number_that_an_override_changes_is_a_line_for_it_differs_between_runs(
    dashboards: Dashboards,
) -> None:
    title = "Truncated and signal-free shares"
    overridden = dashboards(OVERRIDES)

    assert steps(overridden, title) == [("green", None), ("orange", 0.95)], "NoLearningSignal is as it was"
    assert len(lines(overridden, title, "Truncation")) == 2


@pytest.mark.parametrize("version", ["2.42", "3.13"])
def test_a_real_prometheus_draws_each_line_at_the_limit_of_the_run_on_show(
    version: str, dashboards: Dashboards, tmp_path: Path
) -> None:
    relative, absolute = lines(dashboards(OVERRIDES), "KL", "KLExplosion")
    noise = {"other": 0.001, "noisy": 0.5, "ppo/a": 0.001, "sft1": 0.001, "x/quiet": 0.001}
    given = {
        f'rl_{name}{{run="{run}",instance="{instance}"{labels}}}': value
        for run in noise
        for instance in ("a", "b")
        for name, labels, value in (
            ("start", ',signal="kl"', 0.25),
            ("noise", ',signal="kl"', noise[run]),
            ("step", "", 7),
        )
    }

    above_start = {"other": 1.25, "noisy": 3.25, "ppo/a": 2.25}
    assert_values(version, tmp_path, given, {fill_in(relative, run): above_start.get(run) for run in noise})
    assert_values(version, tmp_path, given, {fill_in(absolute, run): {"ppo/a": 3}.get(run) for run in noise})


def assert_values(
    version: str, folder: Path, given: dict[str, float], expected: dict[str, float | None]
) -> None:
    """Have promtool evaluate expressions about one run each over constant series; None is no result."""
    test = {
        "input_series": [{"series": series, "values": f"{value}x10"} for series, value in given.items()],
        "interval": "1m",
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": "5m",
                "exp_samples": [] if value is None else [{"labels": run_of(expr), "value": value}],
            }
            for expr, value in expected.items()
        ],
    }
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    done = subprocess.run(
        [prometheus(version).tool, "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_of(expr: str) -> str:
    found = re.search(r'run="[^"]*"', expr)
    assert found
    return f"{{{found[0]}}}"
