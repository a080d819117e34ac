"""GPUs that are split into instances, and split again while they are read."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.gpu.driver import Driver, uuid
from tests.gpu.expected import lacking
from tests.gpu.exporter import Exporter, Starting, all_ok, reasons, shown
from tests.runs.scrape import Scrape

OTHERS = set(range(8)) - {3}
CALM = ("--interval=0.4", "--retry=0.3")
"""Slow enough for a busy machine to miss no reading."""

SPLIT = (
    "gpus=8",
    "mig=3",
    "instance=3:0:7:0:1g.18gb",
    "instance=3:2:5:0:1c.3g.71gb",
    "instance=3:3:5:1:2c.3g.71gb",
)
"""There is nothing at number 1, and two compute instances share a GPU instance."""


def instances(found: Scrape) -> set[tuple[str, str, str]]:
    """GPU instance, compute instance and profile of each."""
    reported = [dict(labels) for labels in found.all("gpu_mig_info")]
    assert all(labels["gpu"] == "3" and labels["uuid"] == uuid(3) for labels in reported)
    assert len({labels["mig_uuid"] for labels in reported}) == len(reported)
    return {(each["gpu_instance_id"], each["compute_instance_id"], each["profile"]) for each in reported}


def by_instance(found: Scrape, metric: str, **labels: str) -> dict[str, float]:
    return {
        dict(reported)["gpu_instance_id"]: value
        for reported, value in found.all(metric, gpu="3", **labels).items()
    }


def active(found: Scrape) -> set[str]:
    return set(by_instance(found, "gpu_mig_sm_active_ratio"))


def changed(exporter: Exporter, true: Callable[[Scrape], object]) -> Scrape:
    """Wait for what becomes of GPU 3, while no other one misses a value."""

    def is_true(found: Scrape) -> object:
        reported = reasons(found)
        assert reported.pop(3) in ("ok", "mig_changed")
        assert reported == dict.fromkeys(OTHERS, "ok")
        assert shown(found) >= OTHERS, found.text
        return true(found)

    found = exporter.until(is_true)
    assert all_ok(found)
    return found


def test_each_instance_is_reported_once_and_nothing_of_the_board_twice(
    driver: Driver, start: Starting
) -> None:
    driver.tell(*SPLIT)
    found = start().until(active)

    assert instances(found) == {("7", "0", "1g.18gb"), ("5", "0", "1c.3g.71gb"), ("5", "1", "2c.3g.71gb")}
    assert by_instance(found, "gpu_mig_memory_total_bytes") == {"7": 18 << 30, "5": 71 << 30}
    assert by_instance(found, "gpu_mig_memory_used_bytes") == {"7": 7 << 30, "5": 5 << 30}
    assert by_instance(found, "gpu_mig_memory_reserved_bytes") == {"7": 643825664, "5": 643825664}
    assert by_instance(found, "gpu_mig_memory_free_bytes")["7"] == (11 << 30) - 643825664
    assert by_instance(found, "gpu_mig_sm_active_ratio") == {
        "7": pytest.approx(0.12),
        "5": pytest.approx(0.10),
    }
    assert by_instance(found, "gpu_mig_pipe_active_ratio", pipe="tensor")["7"] == pytest.approx(0.15)
    assert found.value("gpu_memory_used_bytes", gpu="3") == 13 << 30
    assert len(found.all("gpu_power_watts", gpu="3")) == 1
    assert not [name for name, _ in found.samples if name.startswith("gpu_mig_pcie")]


def test_utilisation_is_absent_of_a_split_gpu_only(driver: Driver, start: Starting) -> None:
    driver.tell(*SPLIT)
    found = start().until(
        lambda found: active(found) and all_ok(found) and shown(found, "gpu_sm_active_ratio") == OTHERS
    )

    assert shown(found) == OTHERS
    assert {"GetUtilizationRates", "GetSamples", "GpmSampleGet"} <= lacking(found, 3).keys()


def test_memory_of_the_board_needs_a_permission_that_its_instances_do_not(
    driver: Driver, start: Starting
) -> None:
    driver.tell(*SPLIT, "unprivileged=1")
    found = start().until(lambda found: active(found) and all_ok(found))

    assert shown(found, "gpu_memory_used_bytes") == OTHERS
    assert lacking(found, 3)["GetMemoryInfo"] == "no_permission"
    assert set(by_instance(found, "gpu_mig_memory_used_bytes")) == {"5", "7"}


def test_before_hopper_instances_have_memory_and_one_line_for_what_they_lack(
    driver: Driver, start: Starting
) -> None:
    driver.tell("gpus=2", "profile=a100-mig")
    found = start().until(lambda found: found.all("gpu_mig_memory_total_bytes"))

    assert len(found.all("gpu_mig_info", gpu="1", profile="1g.10gb")) == 7
    assert len(found.all("gpu_mig_memory_total_bytes", gpu="1")) == 7
    assert lacking(found, 1)["GpmMigSampleGet"] == "not_supported"
    assert not found.all("gpu_mig_sm_active_ratio")


def test_a_gpu_that_is_split_while_it_is_read_and_then_is_whole_again(
    driver: Driver, start: Starting
) -> None:
    exporter = start(*CALM)
    exporter.until(lambda found: all_ok(found) and shown(found, "gpu_sm_active_ratio") == OTHERS | {3})
    driver.tell(*SPLIT)
    found = changed(exporter, active)

    assert len(instances(found)) == 3
    assert shown(found) == OTHERS
    assert (found.value("gpu_exporter_nvml_reinit_total") or 0) >= 1
    driver.tell("gpus=8")
    found = changed(exporter, lambda found: shown(found, "gpu_sm_active_ratio") == OTHERS | {3})

    assert shown(found) == OTHERS | {3}
    assert not [name for name, _ in found.samples if name.startswith("gpu_mig_m") and name != "gpu_mig_mode"]


def test_a_split_gpu_does_not_wait_for_another_that_is_lost(driver: Driver, start: Starting) -> None:
    exporter = start("--interval=0.4", "--retry=300")
    exporter.until(all_ok)
    driver.tell("gpus=8", "lost=5:15")
    exporter.until(lambda found: reasons(found)[5] == "lost")
    driver.tell(*SPLIT, "lost=5:15")
    exporter.until(lambda found: reasons(found)[3] == "mig_changed")
    found = exporter.until(lambda found: reasons(found)[3] == "ok" and active(found))

    assert reasons(found)[5] == "lost"
    reported = exporter.end()[1]
    assert f"GPU 5 ({uuid(5)}): lost\n" in reported
    assert f"GPU 3 ({uuid(3)}): mig_changed\nGPU 3 ({uuid(3)}): ok\n" in reported


def test_a_gpu_that_is_split_in_another_way(driver: Driver, start: Starting) -> None:
    driver.tell(*SPLIT)
    exporter = start(*CALM)
    exporter.until(active)
    driver.tell(*SPLIT[:3], "instance=3:1:2:0:3g.71gb", "instance=3:2:5:0:1g.18gb")
    found = changed(exporter, lambda found: active(found) == {"7", "5", "2"})

    assert instances(found) == {("7", "0", "1g.18gb"), ("5", "0", "1g.18gb"), ("2", "0", "3g.71gb")}
    assert by_instance(found, "gpu_mig_memory_total_bytes")["5"] == 18 << 30
    assert not found.all("gpu_exporter_collect_errors_total")


def test_nothing_is_served_of_a_gpu_that_changed_until_nvml_is_reopened(
    driver: Driver, start: Starting
) -> None:
    exporter = start("--interval=0.2", "--retry=60")
    exporter.until(lambda found: 3 in shown(found))
    driver.tell(*SPLIT, "hang=Init")
    exporter.until(lambda found: reasons(found)[3] == "mig_changed")
    until = time.monotonic() + 2
    while time.monotonic() < until:
        found = exporter.scrape()
        assert reasons(found)[3] in ("mig_changed", "timeout", "starting")
        assert not found.all("gpu_power_watts", gpu="3")
        time.sleep(0.02)


def test_lost_while_split_a_gpu_comes_back_with_its_instances(driver: Driver, start: Starting) -> None:
    driver.tell(*SPLIT)
    exporter = start("--interval=0.2", "--retry=60")
    exporter.until(active)
    driver.tell(*SPLIT, "lost=3:15")
    found = exporter.until(lambda found: reasons(found)[3] == "lost")

    assert not found.all("gpu_mig_info")
    driver.tell(*SPLIT, "error=GetMaxMigDeviceCount@3:20")
    found = exporter.until(all_ok)
    assert not by_instance(found, "gpu_mig_memory_used_bytes")
    driver.tell(*SPLIT)
    assert len(instances(exporter.until(active))) == 3
    exporter.end()
    calls = driver.calls()
    assert calls["GpmSampleAlloc", -1] == calls["GpmSampleFree", -1]
