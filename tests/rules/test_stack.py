"""Each rule about Stepwatch itself speaks when it should, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import promtool as unit
from tests.rules import rendered, stack
from tests.rules.promtool import Group, Moment
from tests.rules.stack import SCENARIOS


@pytest.mark.parametrize("alert", SCENARIOS)
def test_fires_when_a_part_of_the_stack_fails(alert: str, promtool: Path, tmp_path: Path) -> None:
    (rule,) = [rule for rule in rendered.rules("stack") if rule["alert"] == alert]
    groups = [scenario.group(alert, rule["labels"]) for scenario in SCENARIOS[alert]]
    unit.check(promtool, unit.write(tmp_path, alert, unit.silently([rule]), groups))


@pytest.mark.parametrize(
    ("series", "who"),
    [
        (stack.NAMED_FAILED, "a:9093 to webhook of receiver ops (test) it"),
        (stack.WEBHOOK_FAILED, "a:9093 to webhook"),
        (stack.PUSH_ERRORS, "a:9090"),
    ],
)
def test_message_about_lost_messages_names_the_receiver_where_alertmanager_does(
    series: str, who: str, promtool: Path, tmp_path: Path
) -> None:
    (rule,) = [rule for rule in rendered.rules("stack") if rule["alert"] == "NotificationFailures"]
    group = Group("lost", {series: stack.ONE_FAILURE}, [Moment(122, {rule["alert"]: []})])
    (alert,) = unit.seen(promtool, unit.write(tmp_path, "lost", [rule], [group]))
    assert alert.annotations["description"] == f"{who}: failed messages in 5 min: 1, limit 0."
