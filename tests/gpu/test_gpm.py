"""What a GPU's own counters say of the time between two readings."""

from __future__ import annotations

import time

import pytest

from tests.gpu.driver import Driver
from tests.gpu.expected import lacking
from tests.gpu.exporter import Starting, all_ok, reasons, shown
from tests.real.waiting import in_time
from tests.runs.scrape import Scrape


def reported(found: Scrape) -> bool:
    return shown(found, "gpu_sm_active_ratio") == set(range(8))


def test_shares_and_rates_are_means_in_base_units(start: Starting) -> None:
    found = start().until(reported)

    shares = {
        ("gpu_graphics_active_ratio", ""): 1,
        ("gpu_sm_active_ratio", ""): 2,
        ("gpu_sm_occupancy_ratio", ""): 3,
        ("gpu_dram_active_ratio", ""): 10,
        ("gpu_pipe_active_ratio", "tensor"): 5,
        ("gpu_pipe_active_ratio", "fp64"): 11,
        ("gpu_pipe_active_ratio", "fp32"): 12,
        ("gpu_pipe_active_ratio", "fp16"): 13,
        ("gpu_pipe_active_ratio", "int"): 4,
    }
    for (metric, pipe), number in shares.items():
        labels = {"pipe": pipe} if pipe else {}
        assert found.value(metric, gpu="3", **labels) == pytest.approx((number + 3) / 100), metric
    assert found.value("gpu_pcie_transmit_bytes_per_second", gpu="3") == 10 * (20 + 3) * 2**20
    assert found.value("gpu_pcie_receive_bytes_per_second", gpu="3") == 10 * (21 + 3) * 2**20


def test_each_has_its_own_error_and_no_impossible_value_is_served(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=1", "gpm=1:nan", "gpm=3:150", "gpm=10:100.3", "gpm=20:-1", "gpmerror=11:3")
    found = start().until(lambda found: shown(found, "gpu_sm_active_ratio"))

    assert found.value("gpu_dram_active_ratio") == 1
    for gone in ("gpu_graphics_active_ratio", "gpu_sm_occupancy_ratio", "gpu_pcie_transmit_bytes_per_second"):
        assert not found.all(gone)
        call = f"GpmSampleGet({gone})"
        assert found.value("gpu_exporter_collect_errors_total", call=call, code="garbage")
    assert {call: why for call, why in lacking(found, 0).items() if "Gpm" in call} == {
        "GpmSampleGet(fp64)": "not_supported"
    }
    assert not found.all("gpu_pipe_active_ratio", pipe="fp64")
    assert found.value("gpu_pipe_active_ratio", pipe="fp32") == 0.12


@pytest.mark.parametrize("profile", ["a100", "rtx4080"])
def test_a_card_without_these_counters_has_one_line_that_says_so(
    driver: Driver, start: Starting, profile: str
) -> None:
    driver.tell("gpus=8", f"profile={profile}")
    found = start().until(all_ok)

    assert [call for call in lacking(found, 3) if "Gpm" in call] == ["GpmSampleGet"]
    assert driver.calls()["GpmSampleGet", 3] == 0


def test_counters_that_only_an_administrator_may_read_are_listed(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "error=GpmSampleGet:4")
    found = start().until(all_ok)

    assert lacking(found, 3)["GpmSampleGet"] == "no_permission"
    assert not found.all("gpu_sm_active_ratio")


def test_readings_that_come_too_fast_for_the_driver_repeat_the_last(driver: Driver, start: Starting) -> None:
    exporter = start("--interval=0.03")
    exporter.until(reported)
    for _ in range(20):
        found = exporter.scrape()
        assert not found.all("gpu_exporter_collect_errors_total", call="GpmSampleGet")
        if all_ok(found):
            assert reported(found)


def test_no_sample_is_left_in_the_library(driver: Driver, start: Starting) -> None:
    exporter = start("--interval=0.2", "--retry=60")
    exporter.until(reported)
    driver.tell("gpus=8", "lost=3:15")
    exporter.until(lambda found: reasons(found)[3] == "lost")
    driver.tell("gpus=8")
    exporter.until(reported)
    exporter.end()
    calls = driver.calls()

    assert calls["GpmSampleAlloc", -1] == 2 * 8 + 2
    assert calls["GpmSampleFree", -1] == calls["GpmSampleAlloc", -1]


def windows(driver: Driver) -> list[int]:
    """Milliseconds between two samples that were compared, of all GPUs."""
    return [milliseconds for name, milliseconds in driver.calls() if name == "GpmWindow"]


def test_a_window_is_the_time_between_two_readings(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=1")
    exporter = start("--interval=0.2")
    exporter.until(lambda found: shown(found, "gpu_sm_active_ratio"))
    time.sleep(3)

    assert in_time(max(windows(driver)) / 1000, 2)


def test_a_window_does_not_reach_over_errors(driver: Driver, start: Starting) -> None:
    exporter = start("--interval=0.2")
    exporter.until(reported)
    driver.tell("gpus=8", *(f"error=GpmSampleGet@{gpu}:999" for gpu in range(8)))
    exporter.until(lambda found: not found.all("gpu_sm_active_ratio"))
    time.sleep(3)
    driver.forget_calls()
    driver.tell("gpus=8")

    assert all_ok(exporter.until(reported))
    assert in_time(max(windows(driver)) / 1000, 2)
