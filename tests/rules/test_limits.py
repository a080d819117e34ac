"""Each rule decides at its limits, needs all partners, and is one alert for two exporters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import promtool as unit
from tests.rules import rendered, variations
from tests.rules.cases import Rule
from tests.rules.catalogue import RULES
from tests.rules.series import EXPORTER, OTHER_EXPORTER


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_fires_beyond_its_limits_only_and_once_for_two_exporters(
    rule: Rule, promtool: Path, tmp_path: Path
) -> None:
    expected = rendered.rule(rule.alert, rule.severity)
    cases = variations.limits(rule)
    groups = [
        variations.still("limits", rule, expected, cases),
        variations.still("two exporters", rule, expected, cases, (EXPORTER, OTHER_EXPORTER)),
    ]
    unit.check(promtool, unit.write(tmp_path, "rule", unit.silently([expected]), groups))
