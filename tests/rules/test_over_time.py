"""Each rule speaks at the right moment, and neither a lost scrape nor a NaN makes it waver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import promtool as unit
from tests.rules import rendered, variations
from tests.rules.cases import Rule
from tests.rules.catalogue import RULES


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_fires_when_a_run_turns_sick_and_bridges_a_minute_without_samples(
    rule: Rule, promtool: Path, tmp_path: Path
) -> None:
    expected = rendered.rule(rule.alert, rule.severity)
    group = variations.over_time(rule, expected)
    unit.check(promtool, unit.write(tmp_path, "rule", unit.silently([expected]), [group]))
