"""A driver call fails, hangs, is slow or answers nonsense: what it costs, and that it is only that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.gpu.driver import Driver, uuid
from tests.gpu.exporter import Exporter, Starting, all_ok, nvml, reasons, shown
from tests.gpu.faults import OTHERS, lasting, only_3, series, soon, strike
from tests.runs.scrape import Scrape


def test_one_failing_call_costs_only_its_own_values(driver: Driver, start: Starting) -> None:
    def only_its_own(found: Scrape) -> bool:
        return all_ok(found) and shown(found, "gpu_power_watts") == OTHERS

    exporter = start()
    before = series(exporter.until(all_ok))
    strike(driver, "error=GetPowerUsage@3:999")
    found = soon(driver, exporter, only_its_own)

    assert {name for name, _ in before - series(found)} == {"gpu_power_watts"}
    assert found.value("gpu_exporter_collect_errors_total", call="GetPowerUsage", code="unknown")
    lasting(exporter, only_its_own)
    driver.tell("gpus=8")
    exporter.until(lambda found: 3 in shown(found, "gpu_power_watts"))


def test_a_slow_call_is_left_out_and_the_rest_goes_on(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "slow=GetPowerUsage:1500")
    # Each GPU is read by itself: they need not be late at the same time.
    exporter.until(lambda page: "timeout" in reasons(page).values())
    # On a busy machine the first timeout may be of a call before.
    found = exporter.until(lambda found: all_ok(found) and not shown(found, "gpu_power_watts"))

    assert shown(found) == set(range(8))
    listed = {
        dict(labels)["reason"] for labels in found.all("gpu_exporter_unsupported", call="GetPowerUsage")
    }
    assert listed == {"slow"}


def threads(exporter: Exporter) -> int:
    return len(list(Path(f"/proc/{exporter.process.pid}/task").iterdir()))


def test_a_call_that_never_returns_is_left_alone_and_reported(driver: Driver, start: Starting) -> None:
    def hung(found: Scrape) -> dict[str, str] | None:
        reported = [dict(labels) for labels in found.all("gpu_exporter_call_hung")]
        return reported[0] if reported else None

    exporter = start()
    assert hung(exporter.until(all_ok)) is None
    before = threads(exporter)
    driver.tell("gpus=8", "wedge=GetPowerUsage@3")
    exporter.until(only_3("timeout"))
    driver.tell("gpus=8")
    lasting(exporter, only_3("timeout"))

    assert hung(exporter.until(hung)) == {"gpu": "3", "uuid": uuid(3), "call": "GetPowerUsage"}
    assert threads(exporter) == before
    assert exporter.end()[0] == 0


def test_a_reset_counter_is_shown_as_the_driver_reports_it(driver: Driver, start: Starting) -> None:
    exporter = start()
    before = series(exporter.until(all_ok))
    for millijoules in (2**32 + 5, 7, 2**62, 0):
        wanted = pytest.approx(millijoules / 1e3)
        strike(driver, f"energy={millijoules}")
        found = soon(
            driver,
            exporter,
            lambda found, wanted=wanted: found.value("gpu_energy_joules_total", gpu="3") == wanted,
        )
        assert all_ok(found)
        assert before <= series(found)


class Call:
    """What the driver is asked for a GPU, and whether that is repeated once the GPU is opened."""

    MOST = 16

    def __init__(self, exporter: Exporter, driver: Driver) -> None:
        self.exporter = exporter
        self.driver = driver
        self.before = series(exporter.until(self.well))
        self.opening = self._asked()
        self.lose(range(1, self.MOST))
        driver.forget_calls()
        driver.tell(f"gpus={self.MOST}")
        exporter.until(self.well)
        self.repeated = self._asked()

    def _asked(self) -> set[str]:
        """Names in the library's log; one of them is a remark, and no call."""
        return {name for name, gpu in self.driver.calls() if gpu > 0} - {"GpmWindow"}

    def lose(self, gpus: Iterable[int]) -> None:
        """So that everything is asked again, as at the start, of GPUs that are back."""
        wanted = self.states(gpus, "lost")
        self.driver.tell(f"gpus={self.MOST}", *(f"lost={gpu}:15" for gpu in gpus))
        self.exporter.until(lambda found: reasons(found) == wanted)

    def states(self, gpus: Iterable[int], reason: str) -> dict[int, str]:
        return {**dict.fromkeys(range(self.MOST), "ok"), **dict.fromkeys(gpus, reason)}

    def well(self, found: Scrape) -> bool:
        return reasons(found) == self.states((), "ok")

    def batches(self) -> Iterator[dict[int, str]]:
        """Each call on a GPU of its own; GPU 0 has nothing to suffer."""
        calls = iter(sorted(self.repeated))
        while batch := dict(enumerate(islice(calls, self.MOST - 1), start=1)):
            yield batch

    def strike(self, batch: dict[int, str], fault: str) -> None:
        """Have each call of the batch go wrong, on its own GPU."""
        self.lose(batch)
        lines = (fault.format(f"{name}@{gpu}") for gpu, name in batch.items())
        self.driver.tell(f"gpus={self.MOST}", *lines)

    def only(self, batch: dict[int, str], found: Scrape) -> bool:
        """Do these GPUs time out, and has every other one all its series?"""
        down = {uuid(gpu) for gpu in batch}
        others = {each for each in self.before if dict(each[1])["uuid"] not in down}
        return reasons(found) == self.states(batch, "timeout") and others <= series(found)


@pytest.fixture(name="calls")
def _calls(driver: Driver, start: Starting) -> Call:
    driver.tell(f"gpus={Call.MOST}")
    # NVML is not reopened for the lost ones: those calls would be counted too.
    return Call(start("--interval=0.2", "--retry=60"), driver)


@pytest.mark.parametrize("fault", ["hang={}", pytest.param("slow={}:5000", marks=pytest.mark.world)])
def test_whichever_call_goes_wrong_it_is_one_gpus_trouble_and_passes_with_it(calls: Call, fault: str) -> None:
    assert len(calls.repeated) > 15
    for batch in calls.batches():
        calls.strike(batch, fault)
        calls.exporter.until(lambda found, batch=batch: calls.only(batch, found))
        lasting(calls.exporter, lambda found, batch=batch: calls.only(batch, found))
        calls.driver.tell(f"gpus={calls.MOST}")
        calls.exporter.until(lambda found: calls.well(found) and calls.before <= series(found))


def test_whichever_call_hangs_while_nvml_is_opened_the_page_comes_and_the_values_with_its_end(
    driver: Driver, start: Starting
) -> None:
    exporter = start()
    before = series(exporter.until(all_ok))
    system = {name for name, gpu in driver.calls() if gpu < 0}
    exporter.end()
    for name in ("Init", *sorted(system)):
        driver.tell("gpus=8", f"hang={name}")
        exporter = start()
        exporter.until(lambda found: nvml(found) in ("starting", "ok"))
        lasting(exporter, lambda found: nvml(found) in ("starting", "ok"))
        driver.tell("gpus=8")
        exporter.until(lambda found: all_ok(found) and before <= series(found))
        exporter.end()


def test_a_gpu_that_hangs_while_it_is_opened_leaves_the_others_and_comes_when_it_is_open(
    calls: Call, driver: Driver, start: Starting
) -> None:
    opening = calls.opening - calls.repeated
    assert "GetHandleByIndex" in opening
    calls.exporter.end()
    for name in sorted(opening):
        driver.tell("gpus=8", f"hang={name}@3")
        exporter = start("--interval=0.2", "--retry=60")
        exporter.until(only_3("timeout"))
        lasting(exporter, only_3("timeout"))
        driver.tell("gpus=8")
        found = exporter.until(lambda found: all_ok(found) and 3 in shown(found))
        assert found.value("gpu_up", gpu="3", uuid=uuid(3)) == 1
        assert found.value("gpu_exporter_nvml_reinit_total") == 0
        exporter.end()
