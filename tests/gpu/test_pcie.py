"""PCIe throughput before Hopper: each question takes the driver 20 ms, so it is asked beside the rest."""

from __future__ import annotations

import time

import pytest

from tests.gpu.driver import Driver
from tests.gpu.exporter import QUICK, Starting, all_ok, reasons, shown
from tests.real.waiting import in_time

SENT, RECEIVED = "gpu_pcie_transmit_bytes_per_second", "gpu_pcie_receive_bytes_per_second"


def test_on_request_it_is_measured(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "profile=a100")
    found = start(*QUICK, "--pcie=true").until(lambda found: 3 in shown(found, SENT))

    assert found.value(SENT, gpu="3") == 1003e3
    assert found.value(RECEIVED, gpu="3") == 2003e3


@pytest.mark.parametrize(("card", "flags"), [("a100", ()), ("h200", ("--pcie=true",))])
def test_otherwise_it_is_not_asked_for(
    driver: Driver, start: Starting, card: str, flags: tuple[str, ...]
) -> None:
    driver.tell("gpus=8", f"profile={card}")
    start(*QUICK, *flags).until(all_ok)
    time.sleep(1)

    assert driver.calls()["GetPcieThroughput", 3] == 0


def test_however_long_it_takes_nothing_waits_for_it(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "profile=a100", "slow=GetPcieThroughput:300")
    exporter = start("--interval=0.5", "--pcie=true")
    found = exporter.until(lambda found: len(shown(found, SENT)) == 8)

    took = found.value("gpu_exporter_collect_duration_seconds", tier="fast")
    assert took is not None
    assert took < 0.3


def test_while_it_hangs_it_is_missing_counted_and_alone_in_that(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", "profile=a100", "hang=GetPcieThroughput@3")
    exporter = start(*QUICK, "--pcie=true")
    found = exporter.until(
        lambda found: found.value(
            "gpu_exporter_collect_errors_total", call="GetPcieThroughput", code="timeout"
        )
    )

    assert reasons(found) == dict.fromkeys(range(8), "ok")
    assert 3 not in shown(found, SENT)
    driver.tell("gpus=8", "profile=a100")
    exporter.until(lambda found: len(shown(found, SENT)) == 8)


@pytest.mark.parametrize("held", ["hang", "slow"])
def test_the_exporter_ends_at_once_in_the_midst_of_it(driver: Driver, start: Starting, held: str) -> None:
    line = "hang=GetPcieThroughput" if held == "hang" else "slow=GetPcieThroughput:20"
    driver.tell("gpus=8", "profile=a100", line)
    exporter = start("--interval=0.05", "--pcie=true")
    exporter.until(all_ok)
    before = time.monotonic()
    code, _, errors = exporter.end()

    assert (code, errors) == (0, "")
    assert in_time(time.monotonic() - before, 5)
    if held == "hang":
        assert not driver.calls()["Shutdown", -1]
