"""What is served when hardware or driver is broken, and that it recovers when they are mended."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.exporter.scrape import Scrape
from tests.gpu.driver import LIBRARY, Driver, uuid
from tests.gpu.exporter import Exporter, all_ok, nvml, reasons, shown

Starting = Callable[..., Exporter]
OTHERS = set(range(8)) - {3}


def only_3(reason: str) -> Callable[[Scrape], bool]:
    """Is GPU 3 down with this reason, and is every other one up and shown?"""
    wanted = {gpu: reason if gpu == 3 else "ok" for gpu in range(8)}
    return lambda found: reasons(found) == wanted and shown(found) == OTHERS


def all_down(reason: str) -> Callable[[Scrape], bool]:
    return lambda found: reasons(found) == dict.fromkeys(range(8), reason) and shown(found) == set()


def steady(exporter: Exporter, true: Callable[[Scrape], bool], seconds: float = 1.5) -> None:
    """Fail unless it stays so."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = exporter.scrape()
        assert true(found), found.text
        time.sleep(0.05)


def test_without_the_library_it_stays_up_says_so_and_finds_one_later(driver: Driver, start: Starting) -> None:
    (driver.folder / LIBRARY).unlink()
    exporter = start()
    found = exporter.until(lambda found: nvml(found) == "library_not_found")

    assert found.value("gpu_devices") == 0
    assert reasons(found) == {}
    driver.install()
    exporter.until(all_ok)
    assert "NVML library_not_found: There is no libnvidia-ml.so.1. Cure: " in exporter.end()[1]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(9, "driver_not_loaded"), (18, "version_mismatch"), (4, "no_permission"), (999, "unknown")],
)
def test_a_driver_that_does_not_answer_is_told_with_its_reason_and_waited_for(
    driver: Driver, start: Starting, code: int, reason: str
) -> None:
    driver.tell("gpus=8", f"init={code}")
    exporter = start()
    exporter.until(lambda found: nvml(found) == reason)
    driver.tell("gpus=8")

    assert (exporter.until(all_ok).value("gpu_exporter_nvml_reinit_total") or 0) >= 1


def test_no_gpus_are_another_thing_than_no_driver(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=0")
    exporter = start()
    found = exporter.until(lambda found: nvml(found) == "ok")

    assert found.value("gpu_devices") == 0
    assert found.all("gpu_driver_info")
    steady(exporter, lambda found: nvml(found) == "ok" and not reasons(found))
    driver.tell("gpus=8")
    exporter.until(all_ok)


@pytest.mark.parametrize("code", [15, 999])
def test_a_gpu_lost_on_the_way_leaves_the_others_and_comes_back(
    driver: Driver, start: Starting, code: int
) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", f"lost=3:{code}")
    found = exporter.until(only_3("lost"))

    assert found.value("gpu_devices") == 8
    steady(exporter, only_3("lost"))
    driver.tell("gpus=8")
    exporter.until(lambda found: all_ok(found) and 3 in shown(found))


@pytest.mark.parametrize("code", [15, 999])
def test_a_gpu_lost_before_the_start_leaves_the_others_and_comes_back(
    driver: Driver, start: Starting, code: int
) -> None:
    driver.tell("gpus=8", f"lost=3:{code}")
    exporter = start()
    exporter.until(only_3("lost"))
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
    deadline = time.monotonic() + 15
    while not all_ok(found := exporter.scrape()):
        assert only_3("lost")(found), found.text
        assert time.monotonic() < deadline
        time.sleep(0.02)

    assert shown(found) == OTHERS | {3}
    assert (found.value("gpu_exporter_nvml_reinit_total") or 0) >= 1


def test_a_gpu_that_the_driver_no_longer_lists_is_lost(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=7", "all=1")
    exporter.until(lambda found: nvml(found) == "uninitialized")
    steady(exporter, lambda found: nvml(found) == "uninitialized")
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
    found = exporter.until(lambda found: found.value("gpu_xid_errors_total", uuid=uuid(5), xid="79") == 1)

    assert found.value("gpu_up", gpu="3", uuid=uuid(3), reason="lost") == 0
    for gpu in OTHERS:
        number = str(gpu - (gpu > 3))
        assert found.value("gpu_up", gpu=number, uuid=uuid(gpu), reason="ok") == 1
        assert found.value("gpu_memory_used_bytes", gpu=number, uuid=uuid(gpu)) == before[gpu]
    assert ("null", -1) not in driver.calls()
    driver.tell("gpus=8")
    exporter.until(lambda found: all_ok(found) and 3 in shown(found))


def test_a_gpu_that_must_be_reset_says_so(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "lost=3:16")

    exporter.until(only_3("reset_required"))


def test_gpus_that_may_not_be_used_say_so(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "lost=3:4")

    start().until(only_3("no_permission"))


def test_all_gpus_lost_are_all_down_and_come_back(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "all=999", *(f"lost={gpu}:999" for gpu in range(8)))
    found = exporter.until(all_down("lost"))

    assert nvml(found) == "ok"
    driver.tell("gpus=8")
    exporter.until(all_ok)


def test_a_driver_that_is_unloaded_is_told_and_opened_anew(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "all=1", "init=9")
    found = exporter.until(lambda found: nvml(found) == "driver_not_loaded")

    assert all_down("driver_not_loaded")(found)
    driver.tell("gpus=8")
    exporter.until(all_ok)


def test_a_lost_gpu_is_asked_for_nothing_but_whether_it_is_back(driver: Driver, start: Starting) -> None:
    exporter = start("--interval=0.2", "--retry=60")
    exporter.until(all_ok)
    driver.tell("gpus=8", "lost=3:15")
    exporter.until(only_3("lost"))
    driver.forget_calls()
    time.sleep(1)
    calls = {name for name, gpu in driver.calls() if gpu == 3}

    assert calls <= {"GetHandleByPciBusId"}
    assert ("null", -1) not in driver.calls()


def test_one_failing_call_costs_only_its_own_values(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "error=GetPowerUsage@3:999")
    exporter = start()
    found = exporter.until(lambda found: found.all("gpu_exporter_collect_errors_total"))

    assert all_ok(found)
    assert shown(found, "gpu_power_watts") == OTHERS
    assert shown(found, "gpu_temperature_margin_celsius") == set(range(8))
    driver.tell("gpus=8")
    exporter.until(lambda found: 3 in shown(found, "gpu_power_watts"))


def test_a_slow_call_is_left_out_and_the_rest_goes_on(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "slow=GetPowerUsage:1500")
    exporter.until(all_down("timeout"))
    found = exporter.until(all_ok)

    assert shown(found, "gpu_power_watts") == set()
    assert shown(found) == set(range(8))
    listed = {
        dict(labels)["reason"] for labels in found.all("gpu_exporter_unsupported", call="GetPowerUsage")
    }
    assert listed == {"slow"}


@pytest.mark.parametrize("call", ["GetUtilizationRates", "GetFieldValues", "GetMemoryInfo", "GetSamples"])
def test_a_gpu_whose_call_hangs_leaves_the_others_and_comes_back(
    driver: Driver, start: Starting, call: str
) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", f"hang={call}@3")
    exporter.until(only_3("timeout"))
    steady(exporter, only_3("timeout"))
    driver.forget_calls()
    mended = time.monotonic()
    driver.tell("gpus=8")
    exporter.until(lambda found: all_ok(found) and 3 in shown(found))

    assert driver.calls()["GetEnforcedPowerLimit", 3] <= 2
    assert driver.calls()["GetClockInfo", 3] / 4 <= (time.monotonic() - mended) / 0.2 + 4


def test_a_hang_in_one_connection_only_is_left_by_opening_another(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    before = exporter.workers()
    driver.tell("gpus=8", "wedge=GetPowerUsage@3")
    exporter.until(only_3("timeout"))
    driver.tell("gpus=8")
    exporter.until(all_ok)

    assert exporter.workers() != before


def test_a_worker_that_the_driver_holds_is_not_doubled(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    before = exporter.workers()
    driver.tell("gpus=8", "held=GetPowerUsage@3")
    exporter.until(only_3("timeout"))
    steady(exporter, only_3("timeout"), seconds=2.5)

    assert exporter.workers() == before
    driver.tell("gpus=8")
    driver.release()
    exporter.until(all_ok)


def test_when_every_call_hangs_all_gpus_are_down_and_come_back(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "hang=GetUtilizationRates")
    exporter.until(all_down("timeout"))
    driver.tell("gpus=8")

    exporter.until(all_ok)


def test_a_driver_that_hangs_while_it_is_opened_is_waited_for(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "hang=Init")
    exporter = start()
    exporter.until(lambda found: nvml(found) == "starting")
    driver.tell("gpus=8")

    exporter.until(all_ok)


def test_an_xid_error_is_counted_once_with_its_time(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    assert not exporter.scrape().all("gpu_xid_last_timestamp_seconds")
    driver.tell("gpus=8", "xid=3:79:1")
    found = exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1)

    assert abs((found.value("gpu_xid_last_timestamp_seconds", gpu="3", xid="79") or 0) - time.time()) < 60
    assert sum(found.all("gpu_xid_errors_total").values()) == 1
    driver.tell("gpus=8", "xid=3:31:2")
    exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="31") == 1)


def test_an_xid_error_outlives_the_gpu_and_the_worker_that_heard_it(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "xid=3:79:1", "gone=3:15")
    exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1)
    driver.tell("gpus=8")
    found = exporter.until(all_ok)

    assert found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1
