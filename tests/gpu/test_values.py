"""What is served of working GPUs, read by NVIDIA's own Python module from a driver of ours."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable

import pytest

from exporter.gpu.contract import CRITICAL_XIDS
from tests.exporter.scrape import Scrape
from tests.gpu.driver import Driver, uuid
from tests.gpu.exporter import QUICK, Exporter, all_ok, reasons, shown
from tests.real import prometheus

Starting = Callable[..., Exporter]


def of(found: Scrape, gpu: int) -> dict[tuple[str, str], float]:
    """A GPU's values by metric and its own label."""
    values = {}
    for (name, labels), value in found.samples.items():
        named = dict(labels)
        if named.pop("gpu", None) == str(gpu) and named.pop("uuid") == uuid(gpu):
            values[name, ",".join(named.values())] = value
    return values


ELSEWHERE = ("gpu_utilization_window", "gpu_graphics_", "gpu_sm_", "gpu_dram_", "gpu_pipe_", "gpu_pcie_", "gpu_processes")
"""Told of by tests of their own: sampled between two readings, or by who uses the GPU."""

H200 = {
    ("gpu_utilization_ratio", ""): 0.43,
    ("gpu_memory_controller_utilization_ratio", ""): 0.3,
    ("gpu_memory_total_bytes", ""): 150754820096,
    ("gpu_memory_reserved_bytes", ""): 643825664,
    ("gpu_memory_used_bytes", ""): 13 << 30,
    ("gpu_memory_free_bytes", ""): 150754820096 - 643825664 - (13 << 30),
    ("gpu_power_watts", ""): 303,
    ("gpu_power_instant_watts", ""): 313,
    ("gpu_power_limit_watts", "default"): 700,
    ("gpu_power_limit_watts", "min"): 200,
    ("gpu_power_limit_watts", "max"): 700,
    ("gpu_power_limit_watts", "requested"): 660,
    ("gpu_power_limit_watts", "enforced"): 650,
    ("gpu_energy_joules_total", ""): 5000000000.003,
    ("gpu_temperature_celsius", "gpu"): 53,
    ("gpu_temperature_celsius", "memory"): 63,
    ("gpu_temperature_margin_celsius", ""): 34,
    ("gpu_temperature_threshold_celsius", "shutdown"): 95,
    ("gpu_temperature_threshold_celsius", "slowdown"): 89,
    ("gpu_temperature_threshold_celsius", "gpu_max"): 87,
    ("gpu_clock_hertz", "graphics"): 1.7e9,
    ("gpu_clock_hertz", "sm"): 1.71e9,
    ("gpu_clock_hertz", "memory"): 3.2e9,
    ("gpu_clock_hertz", "video"): 1.5e9,
    ("gpu_clock_max_hertz", "graphics"): 1.98e9,
    ("gpu_clock_max_hertz", "sm"): 1.981e9,
    ("gpu_clock_max_hertz", "memory"): 3.201e9,
    ("gpu_clock_max_hertz", "video"): 1.545e9,
    ("gpu_up", "ok"): 1,
    **{("gpu_xid_errors_total", str(xid)): 0 for xid in CRITICAL_XIDS},
}


def test_every_quantity_is_served_in_base_units(start: Starting) -> None:
    found = start().until(all_ok)
    values = {key: value for key, value in of(found, 3).items() if not key[0].startswith(ELSEWHERE)}
    (info,) = (key for key in values if key[0] == "gpu_info")

    assert values.pop(info) == 1
    assert values == H200
    assert found.value("gpu_devices") == found.value("gpu_devices_expected") == 8


def test_identity_is_in_the_info_metrics_only(start: Starting) -> None:
    found = start().until(all_ok)
    (told,) = found.all("gpu_info", gpu="3")

    assert dict(told) == {
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


def test_before_ada_thresholds_are_told_and_the_margin_follows_from_them(
    driver: Driver, start: Starting
) -> None:
    driver.tell("gpus=8", "profile=a100")
    values = of(start().until(all_ok), 3)

    assert values["gpu_temperature_threshold_celsius", "slowdown"] == 89
    assert values["gpu_temperature_threshold_celsius", "shutdown"] == 92
    assert values["gpu_temperature_threshold_celsius", "gpu_max"] == 85
    assert values["gpu_temperature_margin_celsius", ""] == 89 - 53


def test_what_a_card_lacks_is_absent_and_listed(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=1", "profile=rtx4080", "error=GetTotalEnergyConsumption:3")
    found = start().until(lambda found: reasons(found) == {0: "ok"})

    assert found.value("gpu_temperature_celsius", sensor="memory") is None
    assert found.value("gpu_energy_joules_total") is None
    assert found.value("gpu_clock_max_hertz", domain="video") is None
    assert found.value("gpu_clock_max_hertz", domain="sm") == 1.981e9
    assert {
        dict(labels)["call"]: dict(labels)["reason"] for labels in found.all("gpu_exporter_unsupported")
    } == {
        "FieldValue_82": "not_supported",
        "GetTotalEnergyConsumption": "not_supported",
        "GetMaxClockInfo(video)": "not_supported",
        "GpmSampleGet": "not_supported",
    }


def test_an_older_driver_is_asked_in_the_way_that_it_knows(driver: Driver, start: Starting) -> None:
    driver.install(
        "nvmlDeviceGetTemperatureV", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMarginTemperature"
    )
    driver.tell("gpus=8", "profile=a100")
    values = of(start().until(all_ok), 3)

    assert values["gpu_temperature_celsius", "gpu"] == 53
    assert values["gpu_memory_used_bytes", ""] == (13 << 30) + 643825664
    assert ("gpu_memory_reserved_bytes", "") not in values
    assert values["gpu_temperature_margin_celsius", ""] == 36


def test_an_impossible_utilization_is_dropped_and_counted(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "util=808334905")
    exporter = start()
    found = exporter.until(lambda found: all_ok(found) and found.all("gpu_exporter_collect_errors_total"))

    assert shown(found) == set()
    assert (
        found.value("gpu_exporter_collect_errors_total", call="GetUtilizationRates", code="garbage") or 0
    ) > 0
    driver.tell("gpus=8")
    assert exporter.until(shown).value("gpu_utilization_ratio", gpu="3") == 0.43


def test_static_values_are_read_once_and_slow_ones_seldom(driver: Driver, start: Starting) -> None:
    exporter = start("--interval=0.1")
    exporter.until(all_ok)
    driver.forget_calls()
    time.sleep(1)
    calls = driver.calls()

    assert 3 <= calls["GetUtilizationRates", 3] <= 11
    assert calls["GetFieldValues", 3] == calls["GetUtilizationRates", 3]
    assert calls["GetEnforcedPowerLimit", 3] <= 1
    for name in ("GetName", "GetMaxClockInfo", "GetPowerManagementDefaultLimit", "GetHandleByIndex"):
        assert calls[name, 3] == 0, name


def test_a_scrape_asks_the_driver_nothing(driver: Driver, start: Starting) -> None:
    exporter = start("--interval=30")
    exporter.until(all_ok)
    time.sleep(0.5)
    driver.forget_calls()
    for _ in range(20):
        exporter.scrape()

    assert {name for name, _ in driver.calls()} <= {"EventSetWait"}


@pytest.mark.parametrize("profile", ["h200", "a100", "rtx4080"])
def test_promtool_finds_nothing_wrong_and_no_value_is_a_nan(
    driver: Driver, start: Starting, profile: str
) -> None:
    driver.tell("gpus=8", f"profile={profile}", "lost=5:15", "error=GetPowerUsage@2:999", "xid=1:79:1")
    exporter = start()
    found = exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="1", xid="79"))

    assert all(math.isfinite(value) for value in found.samples.values())
    for tool in (prometheus("2.42"), prometheus("3.13")):
        done = subprocess.run(
            [tool.tool, "check", "metrics"], input=found.text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), tool.version


def test_eight_gpus_stay_far_below_650_series(start: Starting) -> None:
    assert len(start(*QUICK).until(all_ok).samples) <= 500
