"""What the exporter says about itself."""

from __future__ import annotations

import time

from exporter.runs.model.exporter_health import LOOK_SECONDS, Health
from exporter.runs.serve.metrics import page
from tests.runs.scrape import Scrape


def scrape(health: Health) -> Scrape:
    return Scrape(page([], health.samples()))


def test_the_process_metrics_are_those_of_this_process() -> None:
    found = scrape(Health())

    assert 1e7 < (found.value("process_resident_memory_bytes") or 0) < 1e10
    assert (found.value("process_cpu_seconds_total") or 0) > 0
    assert (found.value("process_start_time_seconds") or 0) > 0


def test_an_exporter_whose_looks_do_not_end_is_not_healthy() -> None:
    health = Health()
    assert health.report() == (True, "ok\n")  # the first look may be under way
    health.polled = time.time() - LOOK_SECONDS + 5
    assert health.report()[0]
    health.polled = time.time() - LOOK_SECONDS - 5
    well, words = health.report()
    assert (well, words.startswith("the logs were not checked for 65 s")) == (False, True)
