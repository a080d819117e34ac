"""The file of panels has the panels of the dashboard, with the limits of the table of alerts."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest

from exporter.runs.model.history import DRAWN, SMOOTHED
from exporter.runs.overview.models import RunId
from exporter.runs.overview.panels import Limit, Panels, of_run
from stepwatch.alerts.table import TABLE
from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.generator import render_all
from stepwatch.rules.lines import lines
from stepwatch.system.environment import CHECKOUT
from tests.grafana.queries import bare, panels_of
from tests.runs.overview.conftest import EVERY_LIMIT, config, panels

DASHBOARD = PurePosixPath("grafana/generated/dashboards/training.json")


def of(title: str, found: Panels | None = None) -> list[Limit]:
    """The limits of a panel."""
    return [limit for panel in (found or panels()).panels if panel.title == title for limit in panel.limits]


def test_every_panel_of_the_dashboard_is_in_with_all_its_curves_and_limits():
    content = render_all(config(*EVERY_LIMIT), CHECKOUT, OnThisMachine, ("grafana",))[DASHBOARD]
    every = list(panels_of(json.loads(content)))
    shown = {each["title"]: each for each in every if each["type"] == "timeseries"}
    drawn = {panel.title: panel for panel in panels(*EVERY_LIMIT).panels}

    closed = [each for row in json.loads(content)["panels"] for each in row.get("panels", ())]
    assert list(drawn) == [title for title in shown if title in drawn]
    assert set(shown) - set(drawn) <= {each["title"] for each in closed}, "only details are Grafana's alone"
    for title, mine in drawn.items():
        theirs = shown[title]
        targets = [
            (each["legendFormat"], bare(each["expr"]))
            for each in theirs["targets"]
            if each["legendFormat"] != "step" and "{{" not in each["legendFormat"]
        ]
        curves = [name for name, _ in targets[: len(targets) - len(mine.limits)]]
        assert sorted(curves) == sorted(each.name for each in (*mine.curves, *mine.queries))
        assert {(each.name, each.promql) for each in mine.queries} <= set(targets)
        assert [(f"{each.name} ({each.severity})", each.promql) for each in mine.limits] == targets[
            len(curves) :
        ]
        assert mine.description == theirs["description"].strip()
        assert mine.unit == theirs["fieldConfig"]["defaults"]["unit"]
    assert {limit.alert for panel in drawn.values() for limit in panel.limits} >= {
        "KLHigh", "RewardDrop", "GradNormHigh", "Truncation", "GPUIdleWhileRunning"
    }  # fmt: skip


def test_every_line_of_a_signal_that_a_panel_shows_is_in_its_panel():
    found = panels(*EVERY_LIMIT).panels
    shown = {each.signal for panel in found for each in (*panel.curves, *panel.queries)}

    for line in lines(config(*EVERY_LIMIT), TABLE):
        there = [panel for panel in found if line.promql in {limit.promql for limit in panel.limits}]
        assert bool(there) == (line.signal in shown), line.name


def test_what_is_kept_of_a_run_is_exactly_what_the_panels_draw():
    found = [line for panel in panels().panels for line in panel.curves]

    assert {line.signal for line in found if not line.smoothed} == DRAWN
    assert {line.signal for line in found if line.smoothed} == SMOOTHED


@pytest.mark.parametrize(
    ("title", "name", "signal", "side", "alone"),
    [
        ("Reward", "RewardDrop", "reward", "low", True),
        ("Reward", "ValidationDrop", "validation_score", "low", True),
        ("KL", "KLExplosion", "kl", "high", True),
        ("KL", "PolicyKLHigh", "policy_kl", "high", True),
        ("Entropy", "EntropyCollapse", "entropy", "low", False),
        ("Entropy", "EntropyCollapse no gain", "entropy", "low", False),
        ("Entropy", "EntropyExplosion", "entropy", "high", True),
        ("Gradient norm", "GradNormHigh from its lowest level", "grad_norm", "high", True),
        ("Response length", "LengthRunaway from its start, more truncated", "response_length", "high", False),
        ("Response length", "LengthCollapse from the median", "response_length", "low", True),
        ("Throughput", "SlowSteps, per GPU", "tokens_per_second_per_gpu", "low", True),
        ("GPU utilisation", "GPUIdleWhileRunning", "gpu_utilization_ratio", "low", False),
        ("Truncated, signal-free", "NoLearningSignal", "zero_std_ratio", "high", False),
    ],
)
def test_a_limit_knows_its_signal_its_side_and_whether_its_alert_looks_at_more(
    title: str, name: str, signal: str, side: str, alone: bool
):
    limit = next(limit for limit in of(title) if limit.name == name)

    assert (limit.signal, limit.side, limit.alone) == (signal, side, alone)


def test_a_hub_draws_the_run_of_a_cluster():
    """Runs that it scrapes have no label `cluster` in its Prometheus, unlike those of agents."""
    for cluster in ("", "night"):
        mine, usual = (
            [each.of(run) for panel in panels(*role).panels for each in (*panel.queries, *panel.limits)]
            for role, run in ((("role=hub",), RunId('a "b"', cluster)), ((), RunId('a "b"')))
        )
        chosen = f'cluster="{cluster}"'

        assert any(f'run="a \\"b\\"",{chosen}' in promql for promql in mine)
        assert not any("${" in promql for promql in mine)
        # GPUs are told apart in another way there: `tests/grafana/test_clusters.py`
        assert {each.replace(f",{chosen}", "") for each in mine} >= {
            each for each in usual if "gpu" not in each
        }


def test_a_hub_asks_for_the_limits_of_all_runs_at_once():
    asked = [each.of() for panel in panels("role=hub").panels for each in (*panel.queries, *panel.limits)]
    assert not [promql for promql in asked if "${" in promql or "run=" in promql]


def test_what_a_hub_backtests_has_no_cluster():
    selected = lines(config("role=hub"), TABLE)[0].promql
    assert "cluster=${cluster:doublequote},run=${run:doublequote}" in selected
    chosen, usual = (of_run(each, RunId("a")) for each in (selected, lines(config(), TABLE)[0].promql))
    assert chosen.replace(',cluster=""', "") == usual
