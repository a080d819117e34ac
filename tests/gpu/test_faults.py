"""One GPU is broken: what is said of it, that the others stay, and that it comes back."""

from __future__ import annotations

import pytest

from tests.gpu.driver import Driver, uuid
from tests.gpu.exporter import Starting, all_ok, nvml, reasons, shown
from tests.gpu.faults import OTHERS, all_down, lasting, only_3, series, soon, strike
from tests.runs.scrape import Scrape


@pytest.mark.parametrize(("code", "reason"), [(15, "lost"), (999, "lost"), (16, "reset_required")])
def test_a_gpu_lost_on_the_way_leaves_the_others_and_comes_back(
    driver: Driver, start: Starting, code: int, reason: str
) -> None:
    exporter = start()
    before = series(exporter.until(all_ok))
    strike(driver, f"lost=3:{code}")
    found = soon(driver, exporter, only_3(reason))

    assert found.value("gpu_devices") == 8
    lasting(exporter, only_3(reason))
    driver.tell("gpus=8")
    exporter.until(lambda found: all_ok(found) and before <= series(found))


@pytest.mark.parametrize(
    ("code", "reason"), [(15, "lost"), (999, "lost"), (16, "reset_required"), (4, "no_permission")]
)
def test_a_gpu_lost_before_the_start_leaves_the_others_and_comes_back(
    driver: Driver, start: Starting, code: int, reason: str
) -> None:
    driver.tell("gpus=8", f"lost=3:{code}")
    exporter = start()
    exporter.until(only_3(reason))
    lasting(exporter, only_3(reason))
    driver.tell("gpus=8")
    found = exporter.until(all_ok)

    assert found.value("gpu_up", gpu="3", uuid=uuid(3)) == 1


def test_a_gpu_that_needs_a_new_connection_comes_back_without_a_gap_of_the_others(
    driver: Driver, start: Starting
) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "gone=3:15")
    exporter.until(only_3("lost"))
    driver.tell("gpus=8")

    def well(found: Scrape) -> bool:
        assert all_ok(found) or only_3("lost")(found), found.text
        return all_ok(found)

    found = exporter.until(well)
    assert shown(found) == OTHERS | {3}
    assert (found.value("gpu_exporter_nvml_reinit_total") or 0) >= 1


def test_a_gpu_that_the_driver_no_longer_lists_is_lost(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=7", "all=1")
    exporter.until(lambda found: nvml(found) == "uninitialized")
    lasting(exporter, lambda found: nvml(found) == "uninitialized")
    driver.tell("gpus=7")
    found = exporter.until(lambda found: nvml(found) == "ok")

    assert reasons(found) == {**dict.fromkeys(range(7), "ok"), 7: "lost"}
    assert found.value("gpu_devices") == 7
    assert found.value("gpu_devices_expected") == 8


def test_when_numbers_move_up_each_gpu_keeps_its_own_values(driver: Driver, start: Starting) -> None:
    exporter = start()
    before = {gpu: exporter.until(all_ok).value("gpu_memory_used_bytes", uuid=uuid(gpu)) for gpu in range(8)}
    driver.tell("gpus=8", "all=1")
    exporter.until(lambda found: nvml(found) != "ok")
    driver.tell("gpus=8", "absent=3", "xid=5:79:1")
    found = exporter.until(
        lambda found: nvml(found) == "ok" and found.value("gpu_xid_errors_total", uuid=uuid(5), xid="79") == 1
    )

    assert found.value("gpu_up", gpu="3", uuid=uuid(3), reason="lost") == 0
    for gpu in OTHERS:
        number = str(gpu - (gpu > 3))
        assert found.value("gpu_up", gpu=number, uuid=uuid(gpu), reason="ok") == 1
        assert found.value("gpu_memory_used_bytes", gpu=number, uuid=uuid(gpu)) == before[gpu]
    assert ("null", -1) not in driver.calls()
    driver.tell("gpus=8")
    exporter.until(lambda found: all_ok(found) and 3 in shown(found))


@pytest.mark.parametrize(("code", "reason"), [(15, "lost"), (999, "unknown")])
def test_all_gpus_lost_are_all_down_and_come_back(
    driver: Driver, start: Starting, code: int, reason: str
) -> None:
    exporter = start()
    exporter.until(all_ok)
    strike(driver, f"all={code}", *(f"lost={gpu}:{code}" for gpu in range(8)))
    found = soon(driver, exporter, all_down(reason))

    assert nvml(found) == "ok"
    lasting(exporter, all_down(reason))
    driver.tell("gpus=8")
    exporter.until(all_ok)
