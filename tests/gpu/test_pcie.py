"""PCIe throughput before Hopper: each question takes the driver 20 ms, so it is asked on request only."""

from __future__ import annotations

import time

import pytest

from tests.gpu.driver import Driver
from tests.gpu.exporter import QUICK, Starting, all_ok, shown

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
