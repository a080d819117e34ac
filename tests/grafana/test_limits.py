"""Limits on the dashboards are those of config.yaml, for the run on show."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from stepwatch.alerts.table import BLOCKS
from tests.alerts import configured
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


def test_a_figure_past_its_limit_has_the_colour_of_the_severity(default: dict[str, Json]) -> None:
    last = panel(default, "Last step")
    within, past = (target["expr"] for target in last["targets"])
    (style,) = last["fieldConfig"]["overrides"]

    assert past.startswith("time() - ")
    assert '> (max by (cluster, run) (rl_limit{alert="Stalled",severity="critical",condition="from' in past
    assert within == f"{past.partition(' > ')[0]}\nunless ({past})"
    assert (style["matcher"]["options"], style["properties"]) == (
        "B",
        [{"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}}],
    )


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
    assert 'condition="fixed"' in lines(textbook, "KL", "KLExplosion")[0]


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
    rules = configured.of(yaml.safe_load(OVERRIDES), "KLExplosion")
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "rl", "rules": rules}]}))
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
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [test]}))
    done = subprocess.run(
        [prometheus(version).tool, "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_of(expr: str) -> str:
    found = re.search(r'run="[^"]*"', expr)
    assert found
    return f"{{{found[0]}}}"
