"""Each rule about a run's starts speaks when it should, only then, and says what there is to know."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import healthy as h
from tests.rules import promtool as unit
from tests.rules import rendered, starts
from tests.rules.promtool import Group, Moment
from tests.rules.starts import SCENARIOS

STEPS = {h.STEP.of(starts.RUN): "640+0x100", h.TOTAL_STEPS.of(starts.RUN): "1000+0x100"}
SAID = {
    "NeverStarted": (
        {starts.LOG: "0+0x100"},
        "ppo/train.log at a:9410: grows without a step for 50m 0s, limit 30 min; no run there has made one.",
    ),
    "Restarting": (
        {starts.RESTARTS: "2+0x5 6+0x100", **STEPS},
        "step 640 of 1000: starts within 1h, beside the first: 4, limit 3.",
    ),
    "ResumedWithLoss": (
        {starts.RESUMES: "2+0x5 3+0x100", starts.LOST: "20+0x100", **STEPS},
        "step 640 of 1000: steps made a second time: 20, limit 1.",
    ),
}
"""What happened 50 minutes ago or since, and the message about it."""


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


@pytest.mark.parametrize("rule", SCENARIOS, ids="-".join)
def test_message_names_the_run_and_how_often_or_how_far(
    rule: tuple[str, str], promtool: Path, tmp_path: Path
) -> None:
    series, words = SAID[rule[0]]
    group = Group("message", series, [Moment(3002, {rule[0]: []})], interval=starts.MINUTE)
    (alert,) = unit.seen(promtool, unit.write(tmp_path, "message", [rendered.rule(*rule)], [group]))
    assert alert.annotations["description"] == words
    assert len(alert.annotations["summary"]) <= 80
