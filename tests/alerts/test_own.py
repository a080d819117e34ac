"""Alerts of users' own, below alerts.d: rules, limits, panels, backtests, and what is refused."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.runs import cli
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.serve.metrics import RunText
from exporter.runs.serve.views import View
from exporter.runs.signals.record import Record
from exporter.runs.signals.unmapped import RawRule
from stepwatch.config import load
from stepwatch.config.own_alerts import looked_at
from stepwatch.operate import limits_report
from stepwatch.operate.limits_report import effective, unmatched
from stepwatch.schema.errors import Refused
from tests.rules.rendered import CHECKOUT

ENTRY = """\
SuccessDrop:
  about: The success rate of the environment fell below a share of its best.
  topic: reward
  severity: critical
  limits:
    best_ratio: {default: 0.5, why: Half of its best.}
    above: {default: null}
  summary: Success rate fell below half of its best
  action: read the newest episodes
  conditions:
    - measured: "env/success, highest of 20 steps:"
      value: max_over(raw("env/success"), 20)
      below: $best_ratio * best(raw("env/success"))
      from: from its best
      signal: env/success
    - measured: "env/success:"
      value: by_run(rl_raw{key="env/success"})
      above: $above
"""


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Callable[..., Path]:
    """Write a configuration with an entry of its own, in which some words are others; returns its file."""

    def place(entry: str = ENTRY, settings: str = "{}", **changed: str) -> Path:
        (tmp_path / "alerts.d").mkdir(exist_ok=True)
        for old, new in changed.items():
            entry = entry.replace(old, new)
        (tmp_path / "alerts.d/env.yaml").write_text(entry)
        (tmp_path / "config.yaml").write_text(settings)
        return tmp_path / "config.yaml"

    return place


def generate(config: Path, out: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "generate.py", "--config", config, "--out", out]
    return subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False)


REFUSED = {
    "another alert's name": ("SuccessDrop:", "KLHigh:", 1, "KLHigh is another alert's name"),
    "not a signal": ('max_over(raw("env/success")', "max_over(rewrd", 12, "did you mean reward?"),
    "no unit": ("  summary", "  unit: parsec\n  summary", 8, '"parsec" is not a unit'),
    "no default": ("default: 0.5, ", "", 6, "best_ratio.default: is missing"),
    "no such limit": ("$best_ratio *", "$best *", 13, "$best, which it does not have"),
    "too few arguments": (", 20)", ")", 12, "'steps' was not provided"),
    "no bracket": (", 20)", ", 20", 12, "no closing bracket"),
    "too many steps": (", 20)", ", 900)", 12, "1 to 64 steps"),
    "two limits": ("      from:", "      above: 1\n      from:", 11, "does not have one limit"),
    "no severity": ("  severity: critical\n", "", 1, "critical, warning or info"),
    "no topic": ("topic: reward", "topic: rewrd", 3, "did you mean reward?"),
    "no such severity": ("severity: critical", "severity: page", 4, "one of info, warning, critical"),
    "no macro": ("max_over(raw", "avg_over(raw", 12, "calls avg_over, which is neither"),
    "no metric": ("rl_raw{", "rl_rwa{", 17, "did you mean rl_raw?"),
    "no value by run": ('max_over(raw("env/success"), 20)', "sum(rl_step)", 12, "no value for each run"),
    "a limit in no condition": ("above: $above", "above: 3", 7, "$above in a condition"),
    "a default of another type": ("default: 0.5", "default: 5", 6, "a share from 0 to 1"),
    "a signal in no condition": (
        "signal: env/success",
        "signal: env/sucess",
        15,
        "did you mean env/success?",
    ),
    "no such key": ("  summary", "  sumary", 8, "did you mean summary?"),
    "no YAML": ("action: read", "action: [read", 10, "is not valid YAML"),
    "no mapping": (ENTRY, "SuccessDrop: 3\n", 1, "is not a mapping"),
}


@pytest.mark.parametrize(("old", "new", "line", "says"), REFUSED.values(), ids=REFUSED)
def test_a_mistake_is_refused_with_its_file_and_line(
    place: Callable[..., Path], old: str, new: str, line: int, says: str
) -> None:
    config = place(**{old: new})
    with pytest.raises(Refused) as refused:
        load(config)
    first = str(refused.value).splitlines()
    assert any(
        each.startswith(f"{config.parent}/alerts.d/env.yaml:{line}: ") and says in each for each in first
    )
    assert "Expected: " in first[0]
    assert " Fix: " in first[0]


def test_what_promtool_refuses_is_named_by_its_entry_and_nothing_is_written(
    place: Callable[..., Path], tmp_path: Path
) -> None:
    done = generate(place(**{"$best_ratio *": "$best_ratio * *"}), tmp_path / "out")
    assert done.returncode == 2
    assert "alerts.d/env.yaml:1: SuccessDrop: could not parse expression: " in done.stderr
    assert "rules/own.yml" not in done.stderr
    assert not list((tmp_path / "out").rglob("*.yml"))


def test_rules_of_users_are_taken_as_they_are_or_refused_by_their_line(
    place: Callable[..., Path], tmp_path: Path
) -> None:
    config = place()
    rules = "groups:\n  - name: mine\n    rules:\n      - {alert: Mine, expr: up == 0}  # as written\n"
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d/mine.yml").write_text(rules)
    assert generate(config, tmp_path / "out").returncode == 0
    assert (tmp_path / "out/prometheus/generated/rules/rules.d-mine.yml").read_text() == rules

    (tmp_path / "rules.d/mine.yml").write_text(rules.replace("up == 0", "up =="))
    done = generate(config, tmp_path / "out")
    assert done.returncode == 2
    assert "rules.d/mine.yml: 4:" in done.stderr
    assert (tmp_path / "out/prometheus/generated/rules/rules.d-mine.yml").read_text() == rules


def test_an_entry_becomes_rules_a_message_a_panel_with_its_limit_and_settings_of_the_exporter(
    place: Callable[..., Path], tmp_path: Path
) -> None:
    settings = "alerts: {SuccessDrop: {best_ratio: 0.4}}\n"
    config = place(settings=settings)
    done = generate(config, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    limit, alert = yaml.safe_load((out / "prometheus/generated/rules/own.yml").read_text())["groups"][0][
        "rules"
    ]
    assert limit["expr"].strip() == '0.4 * max by (cluster, run) (rl_best{signal="env/success"})'
    assert limit["labels"]["condition"] == "from its best"
    assert 'rl_limit{alert="SuccessDrop",severity="critical",condition="from its best"}' in alert["expr"]
    assert "env/success, highest of 20 steps: " in alert["annotations"]["description"]
    assert not alert["annotations"]["runbook_url"]  # the runbook has no entry of that name
    panels = json.loads((out / "exporter/generated/panels.json").read_text())["panels"]
    (panel,) = (each for each in panels if each["title"] == "env/success")
    assert [(each["alert"], each["side"]) for each in panel["limits"]] == [("SuccessDrop", "low")]
    training = (out / "grafana/generated/dashboards/training.json").read_text()
    assert 'rl_limit{alert=\\"SuccessDrop\\"' in training
    runs = json.loads((out / "exporter/generated/runs.json").read_text())
    assert runs["own"]["keys"] == ["env/success"]


def test_an_override_may_change_its_limits(place: Callable[..., Path]) -> None:
    config = load(place(settings='overrides: [{runs: "a*", alerts: {SuccessDrop: {above: 1}}}]'))
    of_run = {
        limit.key: limit.value
        for alert in effective(config, "abc", "config.yaml")
        if alert.name == "SuccessDrop"
        for limit in alert.limits
    }
    assert of_run == {
        "alerts.SuccessDrop.severity": "critical",
        "alerts.SuccessDrop.best_ratio": 0.5,
        "alerts.SuccessDrop.above": 1,
    }


def test_the_exporter_serves_what_it_looks_at(place: Callable[..., Path]) -> None:
    """A raw key without room for any, held extremes, and both at a resume as those of signals."""
    own = cli.own(json.dumps(looked_at(load(place()).table.own)))
    run = Run("flat_jsonl", "generic", Options(hold=10, raw=RawRule(limit=0), own=own))
    for step in range(1, 31):
        value = 0.8 if step < 11 else 0.1
        run.take(
            Record(step, {"env/success": value, "other": float(step)}), Clock(1e9 + step, step, live=True)
        )
    page = "".join(RunText().chunks(View("run", run, "running", None), 30.0).values())
    assert 'rl_raw{run="run",key="env/success"} 0.1\n' in page
    assert "other" not in page
    assert 'rl_max_over_steps{run="run",signal="env/success",steps="20"} 0.1\n' in page
    assert 'rl_best{run="run",signal="env/success"} 0.8\n' in page


def test_it_is_replayed_on_yesterdays_run(place: Callable[..., Path], tmp_path: Path) -> None:
    noise = random.Random(1)
    rises = [min(0.8, 0.1 + step / 100) for step in range(1, 111)]
    values = [value + noise.gauss(0, 0.01) for value in (*rises, *[0.25] * 40)]
    lines = (
        json.dumps(
            {"step": step, "data": {"critic/score/mean": 0.5 + 0.01 * (step % 2), "env/success": value}}
        )
        for step, value in enumerate(values, 1)
    )
    (tmp_path / "run.jsonl").write_text("\n".join(lines) + "\n")

    def fired(*changes: str) -> list[dict[str, Any]]:
        words = [sys.executable, "-m", "stepwatch", "backtest", "--config", place(), "--format", "json"]
        done = subprocess.run(
            [*words, *changes, tmp_path / "run.jsonl"], cwd=CHECKOUT, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        (run,) = json.loads(done.stdout)["runs"]
        return [alert for alert in run["alerts"] if alert["alert"] == "SuccessDrop"]

    (alert,) = fired()
    assert alert["first_step"] == 130  # the 20th step after the fall
    assert alert["value"] == pytest.approx(0.27, abs=0.03)
    assert alert["threshold"] == pytest.approx(0.4, abs=0.02)
    assert not fired("--set", "alerts.SuccessDrop.best_ratio=0.2")


def test_a_backtest_says_what_would_be_silent(place: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text('{"step": 1, "data": {"critic/score/mean": 1}}\n')

    def said(**changed: str) -> str:
        words = [sys.executable, "-m", "stepwatch", "backtest", "--config", place(**changed)]
        done = subprocess.run(
            [*words, tmp_path / "run.jsonl"], cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    assert "No run here logs env/success, which alerts below alerts.d look at.\n" in said()
    broken = said(**{"$best_ratio *": "$best_ratio * *"})
    assert broken.startswith("alerts.d/env.yaml:1: SuccessDrop: could not parse expression: ")


def test_status_names_a_key_that_no_run_logs(
    place: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = 'rl_run_info{run="a",framework="verl"} 1\nrl_raw{run="a",key="env/sucess"} 1\n'
    monkeypatch.setattr(limits_report.http_client, "read", lambda _: page)
    assert unmatched(load(place())) == ["alerts.d: no known run logs env/success. Similar keys: env/sucess."]
