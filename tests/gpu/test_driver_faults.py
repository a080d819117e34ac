"""The driver is missing or broken as a whole: what is said, and that it is found again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu.driver import LIBRARY, Driver
from tests.gpu.exporter import Starting, all_ok, nvml, reasons
from tests.gpu.faults import all_down, lasting, series, strike


def nothing(reason: str) -> Callable[..., bool]:
    """Is no GPU known, for this reason?"""
    return lambda found: nvml(found) == reason and not reasons(found) and found.value("gpu_devices") == 0


def test_without_the_library_it_stays_up_says_so_and_finds_one_later(driver: Driver, start: Starting) -> None:
    (driver.folder / LIBRARY).unlink()
    exporter = start()
    exporter.until(nothing("library_not_found"))
    lasting(exporter, nothing("library_not_found"))
    driver.install()
    exporter.until(all_ok)

    assert "NVML library_not_found: libnvidia-ml.so.1 was not found. Fix: " in exporter.end()[1]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(9, "driver_not_loaded"), (18, "version_mismatch"), (4, "no_permission"), (999, "unknown")],
)
def test_a_driver_that_does_not_answer_is_reported_with_its_reason_and_waited_for(
    driver: Driver, start: Starting, code: int, reason: str
) -> None:
    driver.tell("gpus=8", f"init={code}")
    exporter = start()
    exporter.until(nothing(reason))
    lasting(exporter, nothing(reason))
    driver.tell("gpus=8")

    assert (exporter.until(all_ok).value("gpu_exporter_nvml_reinit_total") or 0) >= 1


def test_no_gpus_are_another_thing_than_no_driver(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=0")
    exporter = start()
    found = exporter.until(nothing("ok"))

    assert found.all("gpu_driver_info")
    lasting(exporter, nothing("ok"))
    driver.tell("gpus=8")
    exporter.until(all_ok)


@pytest.mark.parametrize(("code", "reason"), [(9, "driver_not_loaded"), (18, "version_mismatch")])
def test_a_driver_that_is_unloaded_is_reported_and_reopened_with_every_counter(
    driver: Driver, start: Starting, code: int, reason: str
) -> None:
    exporter = start()
    before = series(exporter.until(all_ok))
    driver.tell("gpus=8", "xid=3:79:1")
    exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1)
    strike(driver, "all=1", f"init={code}")
    exporter.until(lambda found: nvml(found) == reason)
    lasting(exporter, all_down(reason))
    driver.tell("gpus=8")
    found = exporter.until(lambda found: all_ok(found) and before <= series(found))

    assert found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1
    assert (found.value("gpu_exporter_nvml_reinit_total") or 0) >= 1
    assert found.value("gpu_devices") == 8
