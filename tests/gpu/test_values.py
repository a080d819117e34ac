"""What is served of working GPUs, read by NVIDIA's own Python module from a driver of ours."""

from __future__ import annotations

import math
import subprocess
import time

import pytest

from exporter.gpu.backend import CLOCK_EVENTS
from tests.gpu.driver import Driver, uuid
from tests.gpu.expected import CARDS, lacking, of
from tests.gpu.exporter import QUICK, Starting, all_ok, reasons, shown
from tests.real import prometheus


@pytest.mark.parametrize("card", CARDS)
def test_every_quantity_is_served_in_base_units(driver: Driver, start: Starting, card: str) -> None:
    driver.tell("gpus=8", f"profile={card}")
    found = start().until(all_ok)

    assert of(found) == CARDS[card]
    assert found.value("gpu_devices") == found.value("gpu_devices_expected") == 8


def test_identity_is_in_the_info_metrics_only(start: Starting) -> None:
    found = start().until(all_ok)
    (reported,) = found.all("gpu_info", gpu="3")

    assert dict(reported) == {
        "gpu": "3",
        "uuid": uuid(3),
        "name": "NVIDIA H200",
        "pci_bus_id": "00000000:30:00.0",
        "architecture": "hopper",
        "compute_capability": "9.0",
        "vbios_version": "96.00.A5.00.01",
    }
    driver = {"driver_version": "580.95.05", "cuda_version": "13.0", "nvml_version": "13.580.95.05"}
    assert found.value("gpu_driver_info", **driver) == 1


def test_the_highest_sample_between_two_readings_is_served(start: Starting) -> None:
    exporter = start("--interval=0.5")
    found = exporter.until(lambda found: 3 in shown(found, "gpu_utilization_window_max_ratio"))

    assert found.value("gpu_utilization_window_max_ratio", gpu="3") == 0.63


def test_an_impossible_sample_makes_the_others_no_less_true(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "odd=808334905")
    found = start("--interval=0.5").until(
        lambda found: (
            3 in shown(found, "gpu_utilization_window_max_ratio")
            and found.all("gpu_exporter_collect_errors_total", call="GetSamples", code="garbage")
        )
    )

    assert found.value("gpu_utilization_window_max_ratio", gpu="3") == 0.43


def test_the_serial_number_is_reported_only_on_request(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "lost=5:15")
    found = start(*QUICK, "--serial=true").until(lambda found: len(shown(found)) == 7)
    (reported,) = found.all("gpu_info", gpu="3")

    assert dict(reported)["serial"] == "1650000000003"


def test_what_a_card_lacks_is_absent_and_listed_in_few_lines(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=4", "profile=rtx4080", "error=GetTotalEnergyConsumption:3")
    found = start().until(lambda found: set(reasons(found).values()) == {"ok"})
    listed = lacking(found)

    assert found.value("gpu_energy_joules_total") is None
    assert set(listed.values()) == {"not_supported"}
    assert len(listed) <= 20
    assert listed.keys() >= {
        "GetTotalEnergyConsumption",
        "GetMaxClockInfo(video)",
        "GetEngineUtilization(jpeg)",
        "GetMigMode",
        "GetEccMode",
        "GetGpuFabricInfo",
        "FieldValue(memory_temperature)",
        "FieldValue(ecc)",
        "FieldValue(row_remap)",
        "FieldValue(retired_pages)",
        "FieldValue(recovery_action)",
        "FieldValue(nvlink_count)",
        "FieldValue(nvlink)",
    }


def test_a_scrape_asks_the_driver_nothing(driver: Driver, start: Starting) -> None:
    exporter = start("--interval=30")
    exporter.until(all_ok)
    time.sleep(0.5)
    driver.forget_calls()
    for _ in range(20):
        exporter.scrape()

    assert {name for name, _ in driver.calls()} <= {"EventSetWait"}


@pytest.mark.parametrize("card", CARDS)
def test_promtool_finds_nothing_wrong_and_no_value_is_a_nan(
    driver: Driver, start: Starting, card: str
) -> None:
    driver.tell("gpus=8", f"profile={card}", "lost=5:15", "error=GetPowerUsage@2:999", "xid=1:79:1")
    exporter = start()
    found = exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="1", xid="79"))

    assert all(math.isfinite(value) for value in found.samples.values())
    for tool in (prometheus("2.42"), prometheus("3.13")):
        done = subprocess.run(
            [tool.tool, "check", "metrics"], input=found.text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), tool.version


def test_every_reason_has_its_bit(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", f"reasons={0x4 | 0x40 | 0x800}")
    exporter = start()
    found = exporter.until(all_ok)

    active = {
        reason
        for reason in CLOCK_EVENTS.values()
        if found.value("gpu_clock_event_active", gpu="3", reason=reason) == 1
    }
    assert active == {"power_cap", "hardware_thermal"}
    assert len(found.all("gpu_clock_event_active", gpu="3")) == len(CLOCK_EVENTS)
    driver.tell("gpus=8", "reasons=0")
    exporter.until(lambda found: found.value("gpu_clock_event_active", gpu="3", reason="power_cap") == 0)
