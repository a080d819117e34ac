"""The exporter's two processes: what the page shows when one is killed, stopped or asked to end."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from statistics import median

import pytest

from tests.gpu.driver import Driver
from tests.gpu.exporter import Exporter, Starting, all_ok, nvml, reasons, shown
from tests.real import eventually
from tests.real.waiting import HANG_SECONDS, in_time
from tests.runs.scrape import Scrape


def restarts(found: Scrape, reason: str) -> float:
    return found.value("gpu_exporter_worker_restarts_total", reason=reason) or 0


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_that_dies_is_replaced_before_its_values_are_too_old(
    start: Starting, number: signal.Signals
) -> None:
    exporter = start("--interval=0.5", "--retry=0.2")
    exporter.until(all_ok)
    (worker,) = exporter.workers()
    os.kill(worker, number)

    def replaced(found: Scrape) -> bool:
        assert all_ok(found)
        return restarts(found, "died") > 0 and exporter.workers() not in ([], [worker])

    exporter.until(replaced)
    exporter.until(all_ok)


def test_a_driver_that_crashes_its_callers_is_reported_and_recovers(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "segv=GetPowerUsage")
    found = exporter.until(lambda found: nvml(found) == "crashed")

    assert set(reasons(found).values()) == {"crashed"}
    driver.tell("gpus=8")
    exporter.until(all_ok)


def test_a_stopped_worker_shows_nothing_stale_and_is_replaced(start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    (worker,) = exporter.workers()
    os.kill(worker, signal.SIGSTOP)
    stopped = time.monotonic()
    found = exporter.until(lambda found: nvml(found) == "timeout")

    assert in_time(time.monotonic() - stopped, 3)
    assert set(reasons(found).values()) == {"timeout"}
    assert shown(found) == set()
    assert restarts(exporter.until(all_ok), "hung") == 1
    assert not alive(worker)


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_both_quickly_and_lets_go_of_the_devices(
    driver: Driver, start: Starting, number: signal.Signals
) -> None:
    exporter = start()
    exporter.until(all_ok)
    (worker,) = exporter.workers()
    began = time.monotonic()
    code, _, errors = exporter.end(number)

    assert (code, errors) == (0, "")
    assert in_time(time.monotonic() - began, 3)
    assert not alive(worker)
    assert driver.calls()["Shutdown", -1] == 1


@pytest.mark.parametrize("hang", ["hang=GetUtilizationRates", "hang=Init"])
def test_a_signal_ends_both_quickly_though_the_driver_hangs(
    driver: Driver, start: Starting, hang: str
) -> None:
    driver.tell("gpus=8", hang)
    exporter = start()
    eventually(lambda: bool(exporter.workers()))
    time.sleep(0.5)
    (worker,) = exporter.workers()
    began = time.monotonic()

    assert exporter.end()[0] == 0
    assert in_time(time.monotonic() - began, 5)
    assert not alive(worker)


def test_a_worker_does_not_outlive_a_killed_front(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    (worker,) = exporter.workers()
    exporter.end(signal.SIGKILL)

    eventually(lambda: not alive(worker))
    assert driver.calls()["Shutdown", -1] == 1


def test_it_is_healthy_at_once_and_ready_after_the_first_reading(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "hang=Init")
    exporter = start()
    exporter.until(lambda found: nvml(found) == "starting")

    assert [exporter.ask(page)[0] for page in ("/-/healthy", "/-/ready")] == [200, 503]
    driver.tell("gpus=8")
    exporter.until(all_ok)
    assert [exporter.ask(page)[0] for page in ("/-/healthy", "/-/ready", "/")] == [200, 200, 200]
