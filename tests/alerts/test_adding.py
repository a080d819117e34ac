"""To add an alert is to write its entry, its cases and its text in the runbook: all else follows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.copies import copy_checkout

ENTRY = '''

class ResponsesLongWarning(Section):
    """Longer than a fixed limit."""

    above: scalars.Limit = default(3000, "Tokens.", JUDGED)


class ResponsesLong(Block):
    """Responses are longer than a fixed limit."""

    warning: ResponsesLongWarning | None = ResponsesLongWarning()


RESPONSES_LONG = _alert(
    ResponsesLong,
    "warning",
    summary="Responses are very long",
    action="read the longest samples",
    conditions=(
        Condition(
            "response length, lowest of 5 steps:",
            over("min", LENGTH, 5) > Limit("warning.above"),
            signal=LENGTH,
        ),
    ),
    unit=" tokens",
    style=WHOLE,
)

ALERTS += (RESPONSES_LONG,)
'''

CASES = """
RULES += (
    Rule(
        "ResponsesLong",
        "warning",
        "ResponsesLong",
        conditions=(
            Condition(
                "above its limit",
                {h.LENGTH_MIN: 4096},
                limits=(Limit(h.LENGTH_MIN, ABOVE, 3000),),
                needs=(h.LENGTH_MIN,),
            ),
        ),
    ),
)
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

WRITERS = (
    ("generate.py",),
    ("-m", "tests.config.documentation"),
    ("-m", "tests.alerts.golden", "ResponsesLong"),
    ("-m", "tests.alerts.runbook"),
)

CHECKS = (
    *(
        "tests/alerts",
        "tests/rules",
        "tests/grafana",
        "tests/config/test_shipped.py",
        "tests/test_contract.py",
    ),
    *("-k", "ResponsesLong or runbook or table or docs or contract"),
    *("-m", "not e2e", "-p", "no:cacheprovider", "-q", "--ignore", "tests/alerts/test_adding.py"),
)


@pytest.fixture(name="copy")
def _copy(tmp_path: Path) -> Path:
    """A copy of the checkout with the new alert."""
    copy_checkout(tmp_path)
    for name, more in (
        ("stepwatch/alerts/length.py", ENTRY),
        ("tests/rules/catalogue/length.py", CASES),
        ("docs/runbook.md", RUNBOOK),
    ):
        with (tmp_path / name).open("a") as file:
            file.write(more)
    return tmp_path


def test_an_alert_is_added_by_its_entry_its_cases_and_its_text_in_the_runbook(copy: Path) -> None:
    for command in WRITERS:
        _python(copy, *command)

    said = _python(copy, "-m", "pytest", *CHECKS)
    assert " passed" in said
    rules = (copy / "prometheus/generated/rules/rl.yml").read_text()
    assert "- alert: ResponsesLong\n" in rules
    messages = "\nResponsesLong-warning: Responses are very long\n  response length, lowest of 5 steps:"
    assert messages in (copy / "tests/alerts/messages.txt").read_text()
    assert '"name": "ResponsesLong"' in (copy / "exporter/generated/panels.json").read_text()
    assert "alerts.ResponsesLong.warning.above" in (copy / "docs/configuration.md").read_text()
    assert "*Responses are very long* (warning)" in (copy / "docs/runbook.md").read_text()


def _python(copy: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
