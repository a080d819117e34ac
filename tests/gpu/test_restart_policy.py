"""In a container some outages end only with the container: then the exporter ends, once, to get a new one."""

from __future__ import annotations

import time

import pytest

from exporter.gpu.__main__ import FRESH
from tests.gpu.driver import LIBRARY, Driver
from tests.gpu.exporter import QUICK, Exporter, Starting, all_ok, nvml, reasons

DETACHED = tuple(f"lost={gpu}:999" for gpu in range(8))
"""As after `systemctl daemon-reload`: the container may no longer use the devices."""


def begun(start: Starting) -> Exporter:
    exporter = start(*QUICK, "--restart-after=1")
    exporter.until(all_ok)
    return exporter


@pytest.mark.parametrize(
    ("reason", "lines"),
    [
        ("version_mismatch", ("all=1", "init=18")),
        ("unknown", ("all=1", "init=999")),
        ("unknown", ("all=999", *DETACHED)),
        ("lost", ("all=15", *(f"lost={gpu}:15" for gpu in range(8)))),
    ],
)
def test_it_ends_with_a_clear_line(
    driver: Driver, start: Starting, reason: str, lines: tuple[str, ...]
) -> None:
    exporter = begun(start)
    driver.tell("gpus=8", *lines)
    code, _, errors = exporter.ended()

    assert code == FRESH
    assert errors.startswith(
        f"No GPU could be read for 1 s ({reason}), though they could be read before. Exiting "
    )
    assert errors.count("\n") == 1
    assert driver.calls()["Shutdown", -1] >= 1


def test_started_again_without_a_cure_it_stays_and_recovers_later(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "init=18")
    exporter = start(*QUICK, "--restart-after=1")
    exporter.until(lambda found: nvml(found) == "version_mismatch")
    time.sleep(3)
    assert nvml(exporter.scrape()) == "version_mismatch"
    driver.tell("gpus=8")

    exporter.until(all_ok)


@pytest.mark.parametrize(("code", "reason"), [(9, "driver_not_loaded"), (4, "no_permission")])
def test_what_no_restart_cures_keeps_it_up(driver: Driver, start: Starting, code: int, reason: str) -> None:
    exporter = begun(start)
    driver.tell("gpus=8", "all=1", f"init={code}")
    exporter.until(lambda found: nvml(found) == reason)
    time.sleep(3)

    assert nvml(exporter.scrape()) == reason
    driver.tell("gpus=8")
    exporter.until(all_ok)


def test_one_gpu_that_works_keeps_it_up(driver: Driver, start: Starting) -> None:
    exporter = begun(start)
    driver.tell("gpus=8", *DETACHED[1:])
    exporter.until(lambda found: reasons(found)[7] == "lost")
    time.sleep(2)

    assert reasons(exporter.scrape()) == {0: "ok", **dict.fromkeys(range(1, 8), "lost")}


def test_a_library_that_is_replaced_is_loaded_without_a_restart(driver: Driver, start: Starting) -> None:
    """As an upgrade of the driver on a machine does, where the file is not held by a mount."""
    exporter = start()
    assert exporter.until(all_ok).all("gpu_power_watts")
    driver.tell("gpus=8", "all=1", "init=18")
    exporter.until(lambda found: nvml(found) == "version_mismatch")
    (driver.folder / LIBRARY).unlink()
    exporter.until(lambda found: nvml(found) == "library_not_found")
    driver.install("nvmlDeviceGetPowerUsage")
    driver.tell("gpus=8")
    found = exporter.until(all_ok)

    assert not found.all("gpu_power_watts")
    assert found.all("gpu_exporter_unsupported", call="GetPowerUsage", reason="function_not_found")
    assert exporter.process.poll() is None
