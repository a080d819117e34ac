"""Each rule about Stepwatch itself speaks when it should, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import promtool as unit
from tests.rules import rendered
from tests.rules.stack import SCENARIOS


@pytest.mark.parametrize("alert", SCENARIOS)
def test_fires_when_a_part_of_the_stack_fails(alert: str, promtool: Path, tmp_path: Path) -> None:
    (rule,) = [rule for rule in rendered.rules("stack") if rule["alert"] == alert]
    groups = [scenario.group(alert, rule["labels"]) for scenario in SCENARIOS[alert]]
    unit.check(promtool, unit.write(tmp_path, alert, unit.silently([rule]), groups))
