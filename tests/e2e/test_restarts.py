"""Each part is killed and started again in the middle: no alert is lost, none comes twice."""

from __future__ import annotations

import time

import pytest

from tests.e2e.stack import MAINLY_NEWEST, Stack
from tests.e2e.test_delivery import PAGES
from tests.e2e.writer import writing
from tests.own_logs import QUIET, SICK
from tests.real.waiting import let_pass

pytestmark = pytest.mark.e2e

RUNS = ("before", "during")


@pytest.mark.parametrize("versions", MAINLY_NEWEST)
def test_killing_any_part_loses_no_alert_and_doubles_none(tmp_path, versions):
    with (
        Stack(tmp_path, versions) as stack,
        writing(SICK, stack.runs / "before.log", "--stay"),
        writing(QUIET, stack.runs / "healthy.log", "--rate", "0.7", "--stay"),
    ):
        stack.wait_sent("before", PAGES)
        stack.wait_until(lambda: {(page, "before") for page in PAGES} <= stack.firing())
        let_pass(6, stack.evaluations)  # warnings wait 10 s, and what was sent is written down every 10 s

        with writing(SICK, stack.runs / "during.log", "--rate", "2", "--stay"):
            for number, part in enumerate((stack.prometheus, stack.alertmanager, stack.exporter), 1):
                stack.wait_step("during", 8 * number)
                part.kill()
                time.sleep(2)
                part.start()
            stack.wait_sent("during", PAGES)
            stack.wait_until(lambda: {(page, run) for page in PAGES for run in RUNS} <= stack.firing())
            let_pass(6, stack.evaluations)

        for run in RUNS:
            sent = stack.sent(run)
            assert {name for name, _ in sent} >= PAGES
            assert len(sent) == len(set(sent))
            assert stack.sent(run, "resolved") == []
        assert stack.sent("healthy") == []
