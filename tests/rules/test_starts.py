"""Each rule about a run's starts speaks when it should, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import promtool as unit
from tests.rules import rendered
from tests.rules.starts import SCENARIOS


@pytest.mark.parametrize("rule", SCENARIOS, ids="-".join)
def test_fires_when_a_run_does_not_start_or_starts_again(
    rule: tuple[str, str], promtool: Path, tmp_path: Path
) -> None:
    found = rendered.rule(*rule)
    for interval in {scenario.interval for scenario in SCENARIOS[rule]}:
        groups = [
            each.group(rule[0], found["labels"]) for each in SCENARIOS[rule] if each.interval == interval
        ]
        unit.check(promtool, unit.write(tmp_path, f"starts {interval}", unit.silently([found]), groups))
