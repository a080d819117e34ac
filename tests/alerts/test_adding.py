"""To add an alert is to write its entry and its text in the runbook: all else follows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import real
from tests.real.copies import copy_checkout

pytestmark = pytest.mark.e2e

ENTRY = """
ResponsesLong:
  about: Responses are longer than a fixed limit.
  alerts:
    - severity: warning
      about: Longer than a fixed limit.
      limits:
        above: {default: 3000, why: Tokens., evidence: judged}
      summary: Responses are very long
      action: read the longest samples
      conditions:
        - measured: "response length, lowest of 5 steps:"
          value: min_over(response_length, 5)
          above: $above
          signal: response_length
"""

RUNBOOK = """
### ResponsesLong

**Meaning.** Responses are very long.

**Impact.** Steps take longer.

**Diagnosis**

1. The samples.
2. The limit.
3. The reward.

Known causes: Reasoning that grows.

**Mitigation.** A penalty for length.

**Tuning.** Silence it for long tasks.
"""

WRITERS = (("generate.py",), ("-m", "tests.config.documentation"), ("-m", "tests.alerts.runbook"))


def test_an_alert_is_added_by_its_entry_and_its_text_in_the_runbook(tmp_path: Path) -> None:
    copy_checkout(tmp_path)
    for name, more in (("stepwatch/alerts/length.yaml", ENTRY), ("docs/runbook.md", RUNBOOK)):
        with (tmp_path / name).open("a") as file:
            file.write(more)
    for command in WRITERS:
        _python(tmp_path, *command)

    rules = (tmp_path / "prometheus/generated/rules/rl.yml").read_text()
    limit = 'rl_limit{alert="ResponsesLong",severity="warning",condition="fixed"}'
    assert "  - record: rl_limit\n    expr: |-\n      3000 + 0 * max by (cluster, run)" in rules
    assert f'(rl_min_over_steps{{signal="response_length",steps="5"}}) > on (cluster, run) {limit}\n' in rules
    assert 'response length, lowest of 5 steps: {{printf "%.0f" $value}}, limit ' in rules
    (line,) = (
        limit["promql"]
        for panel in json.loads((tmp_path / "exporter/generated/panels.json").read_text())["panels"]
        for limit in panel["limits"]
        if limit["name"] == "ResponsesLong"
    )
    assert 'alert="ResponsesLong"' in line
    assert "alerts.ResponsesLong.warning.above" in (tmp_path / "docs/configuration.md").read_text()
    assert "*Responses are very long* (warning)" in (tmp_path / "docs/runbook.md").read_text()

    log = tmp_path / "long.jsonl"
    log.write_text(
        "".join(f'{{"step": {step}, "response_length": {1000 * step}}}\n' for step in range(1, 10))
    )
    found = json.loads(
        _python(tmp_path, "-m", "stepwatch", "backtest", str(log), "--format", "json", fails=1)
    )
    said = {each["alert"]: each for each in found["runs"][0]["alerts"]}["ResponsesLong"]
    assert (said["first_record"], said["value"], said["threshold"]) == (8, 4000, 3000)


def _python(copy: Path, *words: str, fails: int = 0) -> str:
    tool = real.prometheus("3.13")
    programs = {"STEPWATCH_PROMETHEUS": str(tool.server), "STEPWATCH_PROMTOOL": str(tool.tool)}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env={**os.environ, **programs},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, fails), done.stdout + done.stderr
    return done.stdout
