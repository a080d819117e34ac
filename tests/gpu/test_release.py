"""The GPUs are let go of for a while, so that someone can reset one or change MIG."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.gpu.driver import Driver
from tests.gpu.exporter import Exporter, Starting, all_ok, nvml, shown
from tests.gpu.faults import only_3
from tests.real.waiting import in_time

RELEASE = "/-/release"


@pytest.fixture(name="exporter")
def _exporter(start: Starting) -> Exporter:
    exporter = start()
    exporter.until(all_ok)
    return exporter


def test_the_answer_comes_when_the_driver_has_been_asked_and_nothing_is_asked_until_the_time_is_over(
    driver: Driver, exporter: Exporter
) -> None:
    status, said = exporter.ask(f"{RELEASE}?seconds=3", "POST")
    released = time.monotonic()

    assert (status, said.partition("\n")[0]) == (
        200,
        "The GPUs are released for 3 s: no device is open.",
    )
    assert driver.calls()["Shutdown", -1] == 1
    driver.forget_calls()
    while time.monotonic() < released + 2:
        found = exporter.scrape()
        assert nvml(found) == "released"
        assert not found.all("gpu_up")
        assert not found.all("gpu_devices")
        assert not shown(found)
        assert found.value("gpu_devices_expected") == 8
        assert exporter.devices() == []
        time.sleep(0.1)
    assert not driver.calls()
    found = exporter.until(all_ok)

    assert time.monotonic() - released >= 2
    assert found.value("gpu_exporter_nvml_reinit_total") == 1


def test_the_signal_does_the_same_for_a_minute(driver: Driver, exporter: Exporter) -> None:
    assert exporter.devices()
    exporter.process.send_signal(signal.SIGUSR1)
    exporter.until(lambda found: nvml(found) == "released" and not exporter.devices())

    assert driver.calls()["Shutdown", -1] == 1
    assert exporter.ask(f"{RELEASE}?seconds=0", "POST")[0] == 200
    exporter.until(all_ok)
    assert "NVML released: The devices are released on request." in exporter.end()[1]


def test_errors_that_were_counted_stay(driver: Driver, exporter: Exporter) -> None:
    driver.tell("gpus=8", "xid=3:79:1")
    exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1)
    exporter.ask(f"{RELEASE}?seconds=1", "POST")
    assert exporter.scrape().value("gpu_xid_errors_total", gpu="3", xid="79") == 1

    assert exporter.until(all_ok).value("gpu_xid_errors_total", gpu="3", xid="79") == 1


@pytest.mark.parametrize("hang", ["GetUtilizationRates", "Init", "EventSetWait"])
def test_while_a_call_hangs_they_are_released_all_the_same_and_nothing_is_forgotten(
    driver: Driver, start: Starting, hang: str
) -> None:
    driver.tell("gpus=8", "xid=3:79:1", *(["hang=Init"] if hang == "Init" else []))
    exporter = start()
    if hang != "Init":
        exporter.until(lambda found: all_ok(found) and found.value("gpu_xid_errors_total", gpu="3", xid="79"))
    driver.tell("gpus=8", f"hang={hang}")
    exporter.until(lambda found: found.all("gpu_exporter_call_hung", call=hang))
    assert exporter.devices()
    began = time.monotonic()
    status, said = exporter.ask(f"{RELEASE}?seconds=3", "POST")

    assert (status, said.partition("\n")[0]) == (200, "The GPUs are released for 3 s: no device is open.")
    assert in_time(time.monotonic() - began, 3)
    assert exporter.devices() == []
    driver.tell("gpus=8")
    assert nvml(exporter.until(lambda found: found.samples)) == "released"
    found = exporter.until(all_ok)
    assert found.value("gpu_devices_expected") == 8
    if hang != "Init":
        assert found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1


def test_a_thread_that_the_kernel_holds_is_reported_and_the_others_are_read_on(
    driver: Driver, exporter: Exporter
) -> None:
    driver.tell("gpus=8", "held=GetPowerUsage@3")
    exporter.until(only_3("timeout"))
    status, said = exporter.ask(RELEASE, "POST")
    exporter.until(only_3("timeout"))

    assert (status, said.partition(":")[0]) == (503, "A call hangs in the driver and cannot be ended")
    driver.tell("gpus=8")
    driver.release()
    exporter.until(all_ok)


@pytest.mark.parametrize(
    "query", ["seconds=3601", "seconds=-1", "seconds=", "seconds=1.5", "seconds=60&more=1", "minutes=1", "60"]
)
def test_a_time_that_makes_no_sense_is_refused_with_the_fix(exporter: Exporter, query: str) -> None:
    status, said = exporter.ask(f"{RELEASE}?{query}", "POST")

    assert status == 400
    assert said == "Expected: /-/release?seconds=N with N from 0 (ends the release) to 3600.\n"
    assert all_ok(exporter.scrape())


def test_only_a_post_that_no_page_of_a_browser_sent_and_without_a_body(exporter: Exporter) -> None:
    assert exporter.ask(RELEASE)[0] == 405
    assert exporter.ask(RELEASE, "POST", Origin="http://elsewhere")[0] == 403
    assert exporter.ask("/metrics", "POST")[0] == 405
    assert exporter.ask("/release", "POST")[0] == 404
    assert exporter.ask(RELEASE, "POST", **{"Transfer-Encoding": "chunked"})[0] == 411
    assert all_ok(exporter.scrape())


def test_however_often_nvml_is_reopened_nothing_grows(exporter: Exporter) -> None:
    def taken() -> tuple[int, float]:
        found = exporter.until(all_ok)
        threads = len(list(Path(f"/proc/{exporter.process.pid}/task").iterdir()))
        return threads, (found.value("process_resident_memory_bytes") or 0) / 2**20

    threads, resident = taken()
    for _ in range(12):
        exporter.ask(f"{RELEASE}?seconds=60", "POST")
        exporter.ask(f"{RELEASE}?seconds=0", "POST")
        exporter.until(all_ok)

    assert taken()[0] == threads
    assert taken()[1] < resident + 8
