"""While no one asks for the page the GPUs are read seldom, and no one notices when someone does again."""

from __future__ import annotations

import time

from tests.gpu.driver import Driver, uuid
from tests.gpu.exporter import Exporter, Starting, all_ok, nvml, reasons, shown
from tests.real import eventually
from tests.real.waiting import in_time

READ = ("GetUtilizationRates", 3)


def idle(start: Starting, driver: Driver) -> Exporter:
    """An exporter at which no one has looked for a while."""
    exporter = start("--interval=0.2", "--idle=1", "--retry=0.3")
    exporter.until(all_ok)
    time.sleep(1.5)
    driver.forget_calls()
    return exporter


def test_the_first_page_is_not_empty_and_the_readings_come_back(driver: Driver, start: Starting) -> None:
    exporter = idle(start, driver)
    time.sleep(2)
    assert driver.calls()[READ] == 0
    found = exporter.scrape()
    again = exporter.scrape()

    for page in (found, again):
        assert all_ok(page)
        assert shown(page) == set(range(8))
    eventually(lambda: driver.calls()[READ] >= 5)
    assert all_ok(exporter.scrape())


def test_an_error_of_a_gpu_is_heard_at_once_all_the_same(driver: Driver, start: Starting) -> None:
    exporter = idle(start, driver)
    driver.tell("gpus=8", "xid=3:79:1")
    time.sleep(1)

    assert exporter.scrape().value("gpu_xid_errors_total", gpu="3", uuid=uuid(3), xid="79") == 1


def test_a_gpu_that_hangs_meanwhile_is_found_within_three_readings_of_someone_who_looks(
    driver: Driver, start: Starting
) -> None:
    exporter = idle(start, driver)
    driver.tell("gpus=8", "hang=GetUtilizationRates@3")
    time.sleep(0.5)
    looked = time.monotonic()
    assert all_ok(exporter.scrape())
    found = exporter.until(lambda found: nvml(found) == "ok" and reasons(found)[3] == "timeout")

    assert in_time(time.monotonic() - looked, 3)
    assert shown(found) == set(range(8)) - {3}
