"""Each part is killed and started again in the middle: no alert is lost, none comes twice."""

from __future__ import annotations

import time

import pytest

from tests.e2e.stack import CONSOLE, PAIRS, Stack, wait_until
from tests.e2e.test_delivery import PAGES, SICK
from tests.e2e.writer import writing

pytestmark = pytest.mark.e2e

HEALTHY = CONSOLE / "opd_ry3hgbx5_healthy_180steps.log"


@pytest.mark.parametrize("versions", PAIRS, ids=lambda versions: "prometheus-" + versions[0])
def test_killing_any_part_loses_no_alert_and_doubles_none(tmp_path, versions):
    with (
        Stack(tmp_path, versions) as stack,
        writing(SICK, stack.runs / "before.log", "--stay"),
        writing(HEALTHY, stack.runs / "healthy.log", "--rate", "2", "--stay"),
    ):
        stack.wait_sent("before", PAGES, timeout=90)
        wait_until(lambda: {("RewardCollapse", "before"), ("KLExplosion", "before")} <= stack.firing(), 60)
        time.sleep(25)  # warnings wait 10 s, and what was sent is written down every 10 s

        with writing(SICK, stack.runs / "during.log", "--rate", "2", "--stay"):
            for part in (stack.prometheus, stack.alertmanager, stack.exporter):
                time.sleep(4)
                part.kill()
                time.sleep(2)
                part.start()
            stack.wait_sent("during", PAGES, timeout=120)
            wait_until(lambda: ("RewardCollapse", "before") in stack.firing(), 90)
            time.sleep(30)

        for run in ("before", "during"):
            sent = stack.sent(run)
            assert {name for name, _ in sent} >= PAGES
            assert len(sent) == len(set(sent))
            assert stack.sent(run, "resolved") == []
        assert stack.sent("healthy") == []
