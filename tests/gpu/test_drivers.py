"""Drivers from 535 on, with the functions and numbers of their day: what one lacks costs nothing else."""

from __future__ import annotations

import subprocess

import pytest

from tests.gpu.branches import BRANCHES, GONE_WITH_CUDA_14, Branch
from tests.gpu.driver import LIBRARY, Driver
from tests.gpu.expected import A100, CARDS, H200, lacking, of
from tests.gpu.exporter import Starting, all_ok, shown

NEW_IN_535 = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo_v2")
NEEDED = {
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetUtilizationRates",
}
"""Without these there is no GPU to tell of, or nothing to tell."""


@pytest.mark.parametrize("branch", BRANCHES.values(), ids=BRANCHES)
def test_a_driver_is_asked_for_what_it_knows(driver: Driver, start: Starting, branch: Branch) -> None:
    branch.load(driver)

    assert of(start().until(all_ok)) == branch.reported


def test_what_goes_with_cuda_14_is_not_missed(driver: Driver, start: Starting) -> None:
    driver.install(*GONE_WITH_CUDA_14)

    assert of(start().until(all_ok)) == H200


@pytest.mark.parametrize("card", CARDS)
def test_before_535_the_older_names_do(driver: Driver, start: Starting, card: str) -> None:
    """Memory that is reserved counts as used there."""
    driver.install(*NEW_IN_535)
    driver.tell("gpus=8", f"profile={card}")
    reported = of(start().until(all_ok))

    assert reported == {
        **{key: value for key, value in CARDS[card].items() if key[0] != "gpu_memory_reserved_bytes"},
        ("gpu_memory_used_bytes", ""): (13 << 30) + 643825664,
    }


def test_a_library_that_lacks_almost_everything_gives_the_rest(driver: Driver, start: Starting) -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", driver.folder / LIBRARY], capture_output=True, text=True, check=True
    ).stdout.split()
    functions = {symbol for symbol in symbols if symbol.startswith("nvmlDevice")}
    driver.install(*functions - NEEDED)
    driver.tell("gpus=8")
    exporter = start()
    found = exporter.until(all_ok)

    assert shown(found) == set(range(8))
    assert {metric for metric, _ in of(found)} == {
        "gpu_up",
        "gpu_utilization_ratio",
        "gpu_memory_controller_utilization_ratio",
        "gpu_xid_errors_total",
    }
    assert set(lacking(found).values()) == {"function_not_found"}
    assert not found.all("gpu_exporter_collect_errors_total")
    assert exporter.end()[2] == ""


@pytest.mark.parametrize("code", [3, 13, 999])
def test_one_error_never_disables_a_call_forever(driver: Driver, start: Starting, code: int) -> None:
    """What a driver says it lacks is asked for again after 300 intervals."""
    driver.tell("gpus=1", "profile=a100", f"error=GetPowerUsage:{code}", f"refuse=82:{code}")
    exporter = start("--interval=0.02")
    exporter.until(lambda found: shown(found) == {0})
    assert not shown(exporter.scrape(), "gpu_power_watts")
    driver.tell("gpus=1", "profile=a100")
    found = exporter.until(lambda found: shown(found, "gpu_power_watts") == {0})

    assert found.value("gpu_temperature_celsius", sensor="memory") == 60
    assert ("gpu_power_watts", "") in A100
