"""Why clocks are held down: the bits of now, and the counters, whose numbers NVIDIA moved."""

from __future__ import annotations

import pytest

from exporter.gpu.backend import CLOCK_EVENTS
from tests.gpu.driver import Driver
from tests.gpu.expected import KINDS, SUM, Values, of
from tests.gpu.exporter import Exporter, Starting, all_ok

COUNTED = {
    "535.183.01": SUM,
    "550.163.01": SUM,
    "570.211.01": SUM,
    "575.51.03": KINDS,
    "580.65.06": KINDS,
    "580.76.05": SUM,
    "580.82.07": KINDS,
    "590.44.01": KINDS,
    "a driver that nobody knows": SUM,
}
"""What each driver counts beside the power cap and sync boost."""


@pytest.mark.parametrize("version", COUNTED)
def test_throttling_is_counted_by_the_numbers_of_the_driver(
    driver: Driver, start: Starting, version: str
) -> None:
    """The library answers at the other drivers' numbers with 77 s of something else."""
    driver.tell("gpus=8", f"driver={version}")
    counted: Values = {
        key: value
        for key, value in of(start().until(all_ok)).items()
        if key[0] == "gpu_clock_event_seconds_total" and key[1] not in {"power_cap", "sync_boost"}
    }

    assert counted == COUNTED[version]


def test_every_reason_has_its_bit(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", f"reasons={0x4 | 0x40 | 0x800}")
    exporter = start()
    found = exporter.until(all_ok)

    active = {reason for reason in CLOCK_EVENTS.values() if active_now(exporter, reason)}
    assert active == {"power_cap", "hardware_thermal"}
    assert len(found.all("gpu_clock_event_active", gpu="3")) == len(CLOCK_EVENTS)
    driver.tell("gpus=8", "reasons=0")
    exporter.until(lambda found: found.value("gpu_clock_event_active", gpu="3", reason="power_cap") == 0)


def active_now(exporter: Exporter, reason: str) -> bool:
    return exporter.scrape().value("gpu_clock_event_active", gpu="3", reason=reason) == 1
