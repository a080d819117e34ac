"""The exporter's process: pages while the driver hangs or crashes, and how it ends."""

from __future__ import annotations

import signal
import socket
import time
from statistics import median

import pytest

from tests.gpu.driver import Driver
from tests.gpu.exporter import Exporter, Starting, all_ok, nvml, reasons
from tests.gpu.faults import all_down, lasting
from tests.real.waiting import HANG_SECONDS, in_time
from tests.runs.scrape import Scrape


def test_a_driver_that_hangs_as_a_whole_leaves_the_page_and_no_stale_value(
    driver: Driver, start: Starting
) -> None:
    """As under a lock of the driver's: whatever is asked waits."""
    exporter = start()
    exporter.until(all_ok)
    names = {name for name, _ in driver.calls()}
    driver.tell("gpus=8", *(f"hang={name}" for name in sorted(names)))
    exporter.until(lambda found: len(found.all("gpu_exporter_call_hung")) >= 8)
    lasting(exporter, all_down("timeout"))
    driver.tell("gpus=8")
    exporter.until(all_ok)


def test_fifty_scrapes_at_once_are_answered_while_the_driver_hangs(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", *(f"hang=GetUtilizationRates@{gpu}" for gpu in range(8)))
    exporter.until(lambda found: set(reasons(found).values()) == {"timeout"})

    tries = [at_once(exporter, 50) for _ in range(5)]
    for heads, page, _ in tries:
        assert heads == [b"HTTP/1.1 200 OK"] * 50
        assert set(reasons(Scrape(page)).values()) == {"timeout"}
    # Whoever waited for the driver would be late each time; on a busy machine some tries are.
    assert in_time(min(seconds for _, _, seconds in tries), 0.05)


def at_once(exporter: Exporter, count: int) -> tuple[list[bytes], bytes, float]:
    """First lines of the answers to so many scrapes sent together, a page, and the median of the seconds."""
    clients = [
        socket.create_connection(("127.0.0.1", exporter.port), timeout=HANG_SECONDS) for _ in range(count)
    ]
    began = time.perf_counter()
    for client in clients:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    pages, took = [], []
    for client in clients:
        with client:
            pages.append(b"".join(iter(lambda: client.recv(1 << 20), b"")))  # noqa: B023  (read at once)
        took.append(time.perf_counter() - began)
    return [page.partition(b"\r\n")[0] for page in pages], pages[0].partition(b"\r\n\r\n")[2], median(took)


def test_a_library_that_crashes_ends_the_process_to_be_started_again(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "segv=GetPowerUsage")
    exporter.process.communicate(timeout=HANG_SECONDS)

    assert exporter.process.returncode == -signal.SIGABRT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_quickly_and_releases_the_devices(
    driver: Driver, start: Starting, number: signal.Signals
) -> None:
    exporter = start()
    exporter.until(all_ok)
    began = time.monotonic()
    code, _, errors = exporter.end(number)

    assert (code, errors) == (0, "")
    assert in_time(time.monotonic() - began, 3)
    assert driver.calls()["Shutdown", -1] == 1


@pytest.mark.parametrize("hang", ["GetUtilizationRates", "Init", "Shutdown", "EventSetWait"])
def test_a_signal_ends_it_quickly_though_a_call_hangs(driver: Driver, start: Starting, hang: str) -> None:
    exporter = start()
    if hang != "Init":
        exporter.until(all_ok)
    driver.tell("gpus=8", f"hang={hang}")
    if hang != "Shutdown":
        exporter.until(lambda found: found.all("gpu_exporter_call_hung", call=hang))
    began = time.monotonic()

    assert exporter.end()[0] == 0
    assert in_time(time.monotonic() - began, 3)


def test_it_is_healthy_at_once_and_ready_after_the_first_reading(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "hang=Init")
    exporter = start()
    exporter.until(lambda found: nvml(found) == "starting")

    assert [exporter.ask(page)[0] for page in ("/-/healthy", "/-/ready")] == [200, 503]
    driver.tell("gpus=8")
    exporter.until(all_ok)
    assert [exporter.ask(page)[0] for page in ("/-/healthy", "/-/ready", "/")] == [200, 200, 200]
