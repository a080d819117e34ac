"""What a message about a run says, rendered by Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stepwatch.rules import alerting
from tests import real
from tests.alerts.configured import BLOCKS, rules
from tests.rules import healthy as h
from tests.rules import promtool as unit
from tests.rules import variations
from tests.rules.cases import Values
from tests.rules.healthy import HEALTHY
from tests.rules.promtool import Group, Moment
from tests.rules.series import EXPORTER, STATE
from tests.rules.variations import STALE, Phase

RUN = '实验/a b"c'
LOOK = 37
AGO = -1000
"""The last step, which is then 17 minutes old."""

RULES = [
    *rules({"alerts": {**{name: {"enabled": True} for name in BLOCKS}, "KL": {"warning": {"above": 16}}}}),
    *alerting.recorded()["shown"],
]


@pytest.fixture(name="promtool", params=["2.42", "3.13"])
def _promtool(request: pytest.FixtureRequest) -> Path:
    return real.prometheus(request.param).tool


def _descriptions(
    promtool: Path,
    folder: Path,
    alert: str,
    *phases: Phase,
    of: list[dict[str, Any]] = RULES,
    target: Mapping[str, str] = EXPORTER,
    look: int = LOOK,
) -> list[str]:
    """What the alerts of a name say of a run in its last phase."""
    series = variations.samples(RUN, phases, list(HEALTHY), target, until=look)
    group = Group("message", series, [Moment(look, {alert: []})])
    seen = unit.seen(promtool, unit.write(folder, "message", of, [group]))
    return [each.annotations["description"] for each in seen]


@pytest.mark.parametrize(("node", "where"), [({}, ""), ({"node": "node-7"}, "on node-7: ")])
def test_a_message_of_a_hub_says_on_which_node_a_run_is(
    node: dict[str, str], where: str, promtool: Path, tmp_path: Path
) -> None:
    hub, sick = rules({"role": "hub"}), Phase(0, {h.LENGTH_MEDIAN_5: 50})
    (said,) = _descriptions(promtool, tmp_path, "LengthCollapse", sick, of=hub, target={**EXPORTER, **node})
    assert said.startswith(f"{where}response length, median of 5 steps: 50, limit 100 tokens")


def test_a_run_that_vanished_with_its_agent_keeps_its_last_step(promtool: Path, tmp_path: Path) -> None:
    lived = {STATE: "vanished", h.LAST_STEP_AT: 0}
    phases = Phase(0, lived), Phase(60, lived, STALE)
    (said,) = _descriptions(promtool, tmp_path, "RunVanished", *phases, look=301)
    assert said == "the log's writer is gone; step 640, 5m 0s ago."


def test_a_message_says_what_else_fires_and_not_that_it_does_itself(promtool: Path, tmp_path: Path) -> None:
    sick: Values = {h.KL_MIN: 2, h.KL_MIN_5: 2, h.ENTROPY_MIN: 4}
    (said,) = _descriptions(promtool, tmp_path, "KLExplosion", Phase(0, sick))
    measured, step, *others = said.removesuffix(".").split("; ")
    assert (
        measured
        == "KL, lowest of 3 steps: 2, limit 1.125 nats/token (from its start and standard deviation so far)"
    )
    assert others.pop(0) == "resume from global_step_600 (before the first warning at 640)"
    assert step == "step 640"
    assert sorted(others) == ["EntropyExplosion fires", "KLHigh fires"]
