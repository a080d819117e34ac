"""Each rule about GPUs speaks when it should, and only then."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pytest

from tests.rules import promtool as unit
from tests.rules import rendered
from tests.rules.gpu import SCENARIOS


@pytest.mark.parametrize("rule", SCENARIOS, ids="-".join)
def test_fires_when_a_gpu_fails_or_is_not_made_use_of(
    rule: tuple[str, str], promtool: Path, tmp_path: Path
) -> None:
    found = rendered.rule(*rule, group="rl" if rule[0] == "GPUIdleWhileRunning" else "gpu")
    every = attrgetter("interval")
    files = [
        unit.write(
            tmp_path,
            f"every-{interval}",
            unit.silently([found]),
            [scenario.group(rule[0], found["labels"]) for scenario in scenarios],
        )
        for interval, scenarios in groupby(sorted(SCENARIOS[rule], key=every), every)
    ]
    unit.check(promtool, *files)
