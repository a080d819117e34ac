"""Why clocks are held down: the bits of now, and the counters, whose numbers NVIDIA moved."""

from __future__ import annotations

from exporter.gpu.backend import CLOCK_EVENTS
from tests.gpu.driver import Driver
from tests.gpu.exporter import Exporter, Starting, all_ok


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
