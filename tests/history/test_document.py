"""The file of panels says what the dashboard and the rules say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.runs.history.formula import Formula
from exporter.runs.history.history import DRAWN
from exporter.runs.history.panels import Limit, Panels
from exporter.runs.history.samples import SAMPLED
from stepwatch.config.changes import load_changed
from stepwatch.deployment import OnThisMachine
from stepwatch.generate import CHECKOUT, render_all, stale
from stepwatch.panels import compiling, document
from stepwatch.panels.dashboard import panels as of_dashboard
from tests.history.conftest import EVERY_LIMIT, config, panels


def of(title: str, found: Panels | None = None) -> list[Limit]:
    """The limits of a panel."""
    return [limit for panel in (found or panels()).panels if panel.title == title for limit in panel.limits]


def leaves(formula: Formula) -> Iterator[str]:
    if isinstance(formula, str):
        yield formula
    elif isinstance(formula, list):
        for part in formula[1:]:
            yield from leaves(part)


def test_every_panel_of_the_dashboard_is_in_with_all_its_curves_and_limits():
    files = render_all(config(*EVERY_LIMIT), CHECKOUT, OnThisMachine)
    drawn = {panel.title: panel for panel in panels(*EVERY_LIMIT).panels}

    assert list(drawn) == [
        "Reward",
        "KL",
        "Entropy",
        "Actor loss",
        "Critic loss",
        "Gradient norm",
        "GPU utilisation",
        "Rollout time",
        "Response length",
        "Throughput",
        "Memory",
        "Truncated and signal-free shares",
    ]
    for panel in of_dashboard(files):
        mine = drawn[panel.title]
        assert [line.name for line in mine.curves] == [query.name for query in panel.curves]
        assert [asked.promql for asked in mine.asked] == [query.expression for query in panel.others]
        own = [limit for limit in mine.limits if limit.signal in mine.signals]
        assert [limit.severity for limit in own] == [query.severity for query in panel.limits]
        assert [limit.name for limit in own if " " in limit.name] == [
            query.name for query in panel.limits if " " in query.name
        ]
        assert mine.description == panel.description
        assert (mine.unit, mine.low, mine.high) == (panel.unit, panel.low, panel.high)


def test_what_is_kept_of_a_run_is_exactly_what_the_panels_read():
    found = panels(*EVERY_LIMIT).panels
    formulas = [line.formula for panel in found for line in panel.curves if line.signal is None]
    formulas += [limit.formula for panel in found for limit in panel.limits]

    assert {line.signal for panel in found for line in panel.curves if line.signal} == DRAWN
    assert {leaf for formula in formulas for leaf in leaves(formula)} - {"rl_step"} == SAMPLED


@pytest.mark.parametrize(
    ("title", "name", "signal", "side", "alone"),
    [
        ("Reward", "RewardDrop", "reward", "low", True),
        ("Reward", "ValidationDrop", "validation_score", "low", True),
        ("KL", "KLExplosion", "kl", "high", True),
        ("KL", "PolicyKLHigh", "policy_kl", "high", True),
        ("Entropy", "EntropyCollapse", "entropy", "low", False),
        ("Entropy", "EntropyCollapse while the reward falls", "entropy", "low", False),
        ("Entropy", "EntropyExplosion", "entropy", "high", True),
        ("Gradient norm", "GradNormHigh", "grad_norm", "high", True),
        ("Response length", "LengthRunaway", "response_length", "high", False),
        ("Response length", "LengthCollapse", "response_length", "low", True),
        ("Throughput", "SlowSteps per GPU", "tokens_per_second_per_gpu", "low", True),
        ("GPU utilisation", "GPUIdleWhileRunning", "mean of GPUs", "low", False),
        ("Truncated and signal-free shares", "NoLearningSignal", "zero_std_ratio", "high", False),
    ],
)
def test_a_limit_knows_its_signal_its_side_and_whether_its_rule_looks_at_more(
    title: str, name: str, signal: str, side: str, alone: bool
):
    limit = next(limit for limit in of(title) if limit.name == name)

    assert (limit.signal, limit.side, limit.alone) == (signal, side, alone)


def test_a_threshold_without_a_name_has_that_of_the_alert_with_this_number():
    named = {
        limit.alert for limit in of("Truncated and signal-free shares") if "rl_step" in leaves(limit.formula)
    }

    assert named == {"Truncation", "NoLearningSignal"}


def test_an_override_gives_its_runs_limits_of_their_own(tmp_path: Path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "overrides:\n"
        "  - {runs: 'wild/*', alerts: {KL: {warning: {above_start: 3}, critical: {above_start: 5}}}}\n"
        "  - {runs: 'calm/*', alerts: {KL: {enabled: false}}}\n"
    )
    found = document.document(render_all(load_changed(path, []), CHECKOUT, OnThisMachine))
    limits = next(panel for panel in json.loads(found)["panels"] if panel["title"] == "KL")["limits"]
    high = next(limit for limit in limits if limit["name"] == "KLHigh")

    assert [part[:2] for part in high["formula"][1:]] == [["=~", "wild/.*"], ["!~", "wild/.*|calm/.*"]]
    assert high["side"] == "high"
    assert high["alone"]


def test_what_only_time_or_a_gpu_tells_is_not_compiled():
    for promql in (
        "time() - max by (run) (rl_last_step_timestamp_seconds)",
        "max by (instance) (gpu_utilization_ratio)",
        "rate(rl_step[5m])",
        "max by (run) (rl_start{signal='kl'} offset 5m)",
    ):
        with pytest.raises(compiling.UncompiledError):
            compiling.limit(promql)


def test_the_file_is_checked_with_all_others(tmp_path: Path):
    changes = stale(CHECKOUT / "config.yaml", tmp_path)

    assert document.PANELS in changes.missing
