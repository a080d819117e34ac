"""Critical Xid errors, from the driver's event to the counter."""

from __future__ import annotations

import time

from tests.gpu.driver import Driver
from tests.gpu.exporter import Starting, all_ok


def test_an_xid_error_is_counted_once_with_its_time(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    assert not exporter.scrape().all("gpu_xid_last_timestamp_seconds")
    driver.tell("gpus=8", "xid=3:79:1")
    found = exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1)

    assert abs((found.value("gpu_xid_last_timestamp_seconds", gpu="3", xid="79") or 0) - time.time()) < 60
    assert sum(found.all("gpu_xid_errors_total").values()) == 1
    driver.tell("gpus=8", "xid=3:31:2")
    exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="31") == 1)


def test_an_xid_error_outlives_the_gpu_and_the_opening_that_heard_it(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "xid=3:79:1", "gone=3:15")
    exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1)
    driver.tell("gpus=8")
    found = exporter.until(all_ok)

    assert found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1
