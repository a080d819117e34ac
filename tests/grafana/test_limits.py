"""Limits on the dashboards are those of config.yaml, for the run on show."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from stepwatch.alerts.catalogue import BLOCKS, TABLE
from stepwatch.config import Config
from stepwatch.render.dashboard import SEVERITY_COLOURS
from stepwatch.rules import lines as alert_lines
from tests.grafana.conftest import Dashboards, Json
from tests.grafana.queries import View, bare, panels_of
from tests.real import prometheus


def panel(dashboards: dict[str, Json], title: str, of: str = "training") -> Json:
    return next(each for each in panels_of(dashboards[f"stepwatch-{of}"]) if each["title"] == title)


def lines(dashboards: dict[str, Json], title: str, name: str, of: str = "training") -> list[str]:
    """The limits of a panel with this name, of any severity; without the condition that they are near."""
    targets = panel(dashboards, title, of)["targets"]
    return [
        bare(target["expr"])
        for target in targets
        if re.fullmatch(rf"{re.escape(name)} \((critical|warning|info)\)", target["legendFormat"])
    ]


def steps(dashboards: dict[str, Json], title: str, of: str = "training") -> list[tuple[str, float | None]]:
    thresholds = panel(dashboards, title, of)["fieldConfig"]["defaults"]["thresholds"]
    return [(step["color"], step["value"]) for step in thresholds["steps"]]


def test_a_limit_that_moves_with_the_run_is_a_dashed_line_in_the_colour_of_its_severity(
    default: dict[str, Json],
) -> None:
    kl = panel(default, "KL")
    letters = {target["refId"]: target["legendFormat"] for target in kl["targets"]}
    lines = {
        letters.get(each["matcher"]["options"]): {entry["id"]: entry["value"] for entry in each["properties"]}
        for each in kl["fieldConfig"]["overrides"]
    }

    for alert, severity, colour in (
        ("KLHigh", "warning", "orange"),
        ("KLExplosion", "critical", "red"),
        ("PolicyKLHigh", "warning", "orange"),
    ):
        found = lines[f"{alert} ({severity})"]
        assert found["color"] == {"mode": "fixed", "fixedColor": colour}
        assert found["custom.lineStyle"]["fill"] == "dash"


@pytest.mark.parametrize("of", ["training", "gpu"])
def test_no_two_limits_of_a_panel_look_alike(default: dict[str, Json], of: str) -> None:
    several = 0
    for each in panels_of(default[f"stepwatch-{of}"]):
        styles = [
            {entry["id"]: str(entry["value"]) for entry in override["properties"]}
            for override in each["fieldConfig"]["overrides"]
        ]
        looks = [
            (style["color"], style["custom.lineStyle"]) for style in styles if "custom.lineStyle" in style
        ]
        several += len(looks) > 1
        assert len(set(looks)) == len(looks), each["title"]

    assert several


def test_directions_have_no_colour_of_a_severity(default: dict[str, Json]) -> None:
    (mapping,) = panel(default, "What moved first", "diagnose")["fieldConfig"]["defaults"]["mappings"]
    colours = [each["color"] for each in mapping["options"].values()]

    assert len(set(colours)) == len(colours) == 5
    assert not set(colours) & set(SEVERITY_COLOURS.values())


def test_each_panel_has_the_lines_of_the_signals_that_it_shows(default: dict[str, Json]) -> None:
    expected = {line.promql for line in alert_lines.lines(Config(), TABLE)}
    expressions = [
        bare(target["expr"])
        for each in panels_of(default["stepwatch-training"])
        for target in each["targets"]
    ]
    drawn = [expression for expression in expressions if expression in expected]

    assert len(drawn) == len(set(drawn)) > 25


def test_a_figure_past_its_limit_has_the_colour_of_the_severity(default: dict[str, Json]) -> None:
    last = panel(default, "Last step")
    within, past = (target["expr"] for target in last["targets"])
    (style,) = last["fieldConfig"]["overrides"]

    assert past.startswith("time() - ")
    assert "> ((\n  5 * max by (cluster, run) (rl_step_interval_typical_seconds" in past
    assert within == f"{past.partition(' > ')[0]}\nunless ({past})"
    assert (style["matcher"]["options"], style["properties"]) == (
        "B",
        [{"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}}],
    )


def test_a_number_is_a_line_with_a_name_that_is_as_long_as_the_curve(default: dict[str, Json]) -> None:
    (low,) = lines(default, "Entropy", "EntropyCollapse")

    assert re.fullmatch(r"0\.01 \+ 0 \* max by \(.*\) \(rl_entropy\{run=.*\}\)", low)
    assert steps(default, "Entropy") == [("text", None)]


def test_an_alert_that_is_only_noted_has_a_line_too(dashboards: Dashboards) -> None:
    noted = dashboards("alerts: {PolicyLossPositive: {enabled: true, severity: info}}")

    assert len(lines(noted, "Actor loss", "PolicyLossPositive")) == 1


def test_a_panel_without_lines_is_coloured_by_numbers(
    default: dict[str, Json], dashboards: Dashboards
) -> None:
    other = dashboards("alerts: {NonFinite: {warning: {steps: 2}}}")

    assert steps(default, "NaN or Inf") == [("green", None), ("orange", 1), ("red", 3)]
    assert steps(other, "NaN or Inf") == [("green", None), ("orange", 2), ("red", 3)]


def test_the_optional_absolute_limit_of_the_kl_is_drawn_once_it_is_set(
    dashboards: Dashboards, default: dict[str, Json]
) -> None:
    textbook = dashboards("alerts: {KL: {warning: {above: 10}, critical: {above: 15}}}")

    assert lines(default, "KL", "KLHigh from its start") == []
    assert lines(textbook, "KL", "KLHigh from its start") == lines(default, "KL", "KLHigh")
    assert lines(textbook, "KL", "KLExplosion")[0].startswith("15 + 0 * ")


@pytest.mark.parametrize("off", ["{critical: null}", "{enabled: false}"])
def test_a_limit_that_is_off_is_not_drawn(dashboards: Dashboards, off: str) -> None:
    rest = dashboards(f"alerts: {{KL: {off}}}")

    assert not lines(rest, "KL", "KLExplosion")
    assert bool(lines(rest, "KL", "KLHigh")) == (off == "{critical: null}")


def test_with_every_alert_off_the_dashboards_still_show_the_run(dashboards: Dashboards) -> None:
    off = {name: {"enabled": False} for name in BLOCKS}

    none = dashboards(yaml.safe_dump({"alerts": off}))

    for each in [*panels_of(none["stepwatch-training"]), *panels_of(none["stepwatch-gpu"])]:
        assert each["targets"]
        assert all(target["expr"] for target in each["targets"])


def test_limits_of_gpus_are_drawn_on_their_dashboard(
    dashboards: Dashboards, default: dict[str, Json]
) -> None:
    moved = dashboards(
        "alerts: {GPUHot: {margin: 7.5}, GPUMemoryHigh: {enabled: true, used_ratio: 0.9},"
        " GPUThermalThrottle: {throttled_ratio: 0.2}, GPUIdleWhileRunning: {below_ratio: 0.2}}"
    )

    assert lines(default, "Temperature", "GPUHot", "gpu")[0].endswith(") - 5\n)")
    assert lines(moved, "Temperature", "GPUHot", "gpu")[0].endswith(") - 7.5\n)")
    assert lines(default, "Memory in use", "GPUMemoryHigh", "gpu") == []
    assert lines(moved, "Memory in use", "GPUMemoryHigh", "gpu")[0].startswith("min(0.9 * max by (")
    assert lines(default, "Slowed down", "GPUThermalThrottle", "gpu")[0].startswith("min(0.1 + 0 * ")
    assert lines(moved, "Slowed down", "GPUThermalThrottle", "gpu")[0].startswith("min(0.2 + 0 * ")
    assert lines(default, "Slowed down", "GPUPowerBrake", "gpu")[0].startswith("min(0.01 + 0 * ")
    assert steps(default, "Utilisation", "gpu") == [("green", None), ("orange", 0.05)]
    assert steps(moved, "Utilisation", "gpu") == [("green", None), ("orange", 0.2)]


def test_limits_of_gpus_that_are_off_are_not_drawn(dashboards: Dashboards) -> None:
    off = dashboards("alerts: {GPUHot: {enabled: false}, GPUIdleWhileRunning: {enabled: false}}")

    assert lines(off, "Temperature", "GPUHot", "gpu") == []
    assert steps(off, "Utilisation", "gpu") == [("text", None)]


def test_a_limit_of_a_gpu_has_the_colour_of_the_severity_that_is_set(dashboards: Dashboards) -> None:
    paged = dashboards("alerts: {GPUHot: {severity: critical}}")
    temperature = panel(paged, "Temperature", "gpu")
    (letter,) = [each["refId"] for each in temperature["targets"] if "GPUHot" in each["legendFormat"]]
    (found,) = [
        each for each in temperature["fieldConfig"]["overrides"] if each["matcher"]["options"] == letter
    ]

    assert {"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}} in found["properties"]


OVERRIDES = """
overrides:
- runs: ppo/*
  alerts: {KL: {critical: {above_start: 2, above: 3}}}
- {runs: 'sft?', alerts: {KL: {critical: null}}}
- {runs: '*/quiet', alerts: {KL: {enabled: false}}}
"""


@pytest.mark.parametrize("version", ["2.42", "3.13"])
def test_a_real_prometheus_draws_each_line_at_the_limit_of_the_run_on_show(
    version: str, dashboards: Dashboards, tmp_path: Path
) -> None:
    overridden = dashboards(OVERRIDES)
    (relative,) = lines(overridden, "KL", "KLExplosion from its start")
    (absolute,) = lines(overridden, "KL", "KLExplosion")
    noise = {"other": 0.001, "noisy": 0.5, "ppo/a": 0.001, "sft1": 0.001, "x/quiet": 0.001}
    given = {
        f'rl_{name}{{run="{run}",instance="{instance}"{labels}}}': value
        for run in noise
        for instance in ("a", "b")
        for name, labels, value in (
            ("start", ',signal="kl"', 0.25),
            ("noise", ',signal="kl"', noise[run]),
            ("kl", "", 0.3),
            ("run_state", ',state="running"', 1),
        )
    }
    given |= {
        f'rl_limit_override{{run="{run}",instance="a",limit="KL.{key}"}}': value
        for run, key, value in (
            ("ppo/a", "critical.above_start", 2),
            ("ppo/a", "critical.above", 3),
            ("sft1", "critical", 0),
            ("x/quiet", "enabled", 0),
        )
    }

    above_start = {"other": 1.25, "noisy": 3.25, "ppo/a": 2.25}
    assert_values(version, tmp_path, given, {of_run(relative, run): above_start.get(run) for run in noise})
    assert_values(version, tmp_path, given, {of_run(absolute, run): {"ppo/a": 3}.get(run) for run in noise})


def of_run(expr: str, run: str) -> str:
    return View(0, 3600, {"run": run}).expression(expr)


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
