"""What a fault looks like from outside, and what no fault may do."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median

from stepwatch.system import http_client
from tests.gpu.driver import Driver
from tests.gpu.exporter import Exporter, reasons, shown
from tests.real.waiting import in_time
from tests.runs.scrape import Scrape

SCRAPES = 20
LATE_SECONDS = 0.05
OTHERS = set(range(8)) - {3}


def only_3(reason: str) -> Callable[[Scrape], bool]:
    """Is GPU 3 down with this reason, and is every other one up and shown?"""
    wanted = {gpu: reason if gpu == 3 else "ok" for gpu in range(8)}
    return lambda found: reasons(found) == wanted and shown(found) == OTHERS


def all_down(reason: str) -> Callable[[Scrape], bool]:
    return lambda found: reasons(found) == dict.fromkeys(range(8), reason) and shown(found) == set()


def strike(driver: Driver, *lines: str, gpus: int = 8) -> None:
    """Have the driver behave like this, and count its calls from now on."""
    driver.forget_calls()
    driver.tell(f"gpus={gpus}", *lines)


def soon(driver: Driver, exporter: Exporter, true: Callable[[Scrape], bool]) -> Scrape:
    """Scrape until it is true, which takes two cycles, and no more.

    Counted are those cycles, that in which the fault came, and one that passes until someone looks.
    """
    cycles = 0

    def is_true(found: Scrape) -> bool:
        nonlocal cycles
        # Asked before the page is looked at: cycles that come between do not count.
        before, cycles = cycles, driver.calls()["GetMemoryInfo", 0]
        assert before <= 4, found.text
        return true(found)

    return exporter.until(is_true)


def lasting(exporter: Exporter, true: Callable[[Scrape], bool]) -> None:
    """Fail unless it stays so, in finite numbers, and each page comes whatever the driver does.

    Pages that waited for the driver would all be late; for a busy processor some are.
    """
    times = []
    for _ in range(SCRAPES):
        began = time.perf_counter()
        page = http_client.read(exporter.url())
        times.append(time.perf_counter() - began)
        found = Scrape(page.encode())
        assert true(found), page
        assert all(map(math.isfinite, found.samples.values())), page
        time.sleep(0.05)
    assert in_time(median(times), LATE_SECONDS), times


def series(found: Scrape) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """All that is reported about GPUs; Xid errors, and samples of which there may be none, aside."""
    passing = ("gpu_xid_", "gpu_utilization_window_max")
    return {
        (name, labels)
        for name, labels in found.samples
        if "uuid" in dict(labels) and not name.startswith(passing)
    }
