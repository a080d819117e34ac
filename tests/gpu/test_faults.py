"""A GPU, a call or the driver breaks: what is said of it, that the rest stays, and that it comes back."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from exporter.gpu.__main__ import FRESH
from tests.gpu.driver import LIBRARY, Driver, uuid
from tests.gpu.exporter import (
    OTHERS,
    QUICK,
    Exporter,
    Starting,
    all_down,
    all_ok,
    hung,
    lasting,
    nvml,
    only_3,
    reasons,
    series,
    shown,
)
from tests.real.waiting import HANG_SECONDS, in_time
from tests.runs.scrape import Scrape

See = Callable[[Scrape], object]
SPLIT = ("mig=3", "instance=3:0:7:0:1g.18gb", "instance=3:2:5:0:1c.3g.71gb", "instance=3:3:5:1:2c.3g.71gb")
DETACHED = tuple(f"lost={gpu}:999" for gpu in range(8))
"""As after `systemctl daemon-reload`: the container may no longer use the devices."""


def nothing(reason: str) -> See:
    """Is no GPU known, for this reason?"""
    return lambda found: nvml(found) == reason and not reasons(found) and found.value("gpu_devices") == 0


def without(metric: str) -> See:
    """Is only this metric of GPU 3 missing, and counted as a failed call?"""
    return lambda found: (
        all_ok(found)
        and shown(found, metric) == OTHERS
        and shown(found) == OTHERS | {3}
        and found.value("gpu_exporter_collect_errors_total", call="GetPowerUsage", code="unknown")
    )


def slow(found: Scrape) -> bool:
    """Is a slow call left out, of all GPUs?"""
    left_out = found.all("gpu_exporter_unsupported", call="GetPowerUsage", reason="slow")
    return all_ok(found) and len(left_out) == 8 and not shown(found, "gpu_power_watts")


class Fault(NamedTuple):
    """What the driver does from now on, and what is seen of that; ``first``: before the exporter starts."""

    said: tuple[str, ...]
    sees: See
    first: bool = False


FAULTS = {
    "lost": Fault(("lost=3:15",), only_3("lost")),
    "unknown": Fault(("lost=3:999",), only_3("lost")),
    "needs a reset": Fault(("lost=3:16",), only_3("reset_required")),
    "a value of a lost GPU": Fault(("refuse=82:15",), all_down("lost")),
    "needs a new connection": Fault(("gone=3:15",), only_3("lost")),
    "no longer listed": Fault(
        ("all=1", "absent=7"), lambda found: nvml(found) == "uninitialized" and not shown(found)
    ),
    "all lost": Fault(("all=15", *(f"lost={gpu}:15" for gpu in range(8))), all_down("lost")),
    "all detached": Fault(("all=999", *DETACHED), all_down("unknown")),
    "unloaded": Fault(("all=1", "init=9"), all_down("driver_not_loaded")),
    "upgraded": Fault(("all=1", "init=18"), all_down("version_mismatch")),
    "one call fails": Fault(("error=GetPowerUsage@3:999",), without("gpu_power_watts")),
    "one call is slow": Fault(("slow=GetPowerUsage:1500",), slow),
    "one call hangs": Fault(("hang=GetPowerUsage@3",), only_3("timeout")),
    "lost before the start": Fault(("lost=3:15",), only_3("lost"), first=True),
    "unknown before the start": Fault(("lost=3:999",), only_3("lost"), first=True),
    "forbidden before the start": Fault(("lost=3:4",), only_3("no_permission"), first=True),
    "no GPUs": Fault(("gpus=0",), nothing("ok"), first=True),
    "not loaded": Fault(("init=9",), nothing("driver_not_loaded"), first=True),
    "another version": Fault(("init=18",), nothing("version_mismatch"), first=True),
    "forbidden": Fault(("init=4",), nothing("no_permission"), first=True),
    "broken": Fault(("init=999",), nothing("unknown"), first=True),
}
IN_EVERY_RUN = {"lost", "unloaded", "one call fails", "no GPUs"}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(FAULTS[name], id=name, marks=[pytest.mark.world] * (name not in IN_EVERY_RUN))
        for name in FAULTS
    ],
)
def test_a_fault_is_reported_costs_only_its_own_values_and_passes(
    driver: Driver, start: Starting, fault: Fault
) -> None:
    def counted(found: Scrape) -> bool:
        return found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1

    before = set[Any]()
    said = () if fault.said[0].startswith("gpus=") else ("gpus=8",)
    if not fault.first:
        driver.tell("gpus=8", "xid=3:79:1")
        exporter = start()
        before = series(exporter.until(lambda found: all_ok(found) and counted(found)))
    driver.tell(*said, *fault.said)
    if fault.first:
        exporter = start()
    exporter.until(fault.sees)
    lasting(exporter, fault.sees)
    driver.tell("gpus=8")
    # What the driver said to be slow is asked for again after 300 intervals.
    back = exporter.until(
        lambda found: all_ok(found) if fault.sees is slow else all_ok(found) and before <= series(found)
    )

    assert back.value("gpu_devices") == back.value("gpu_devices_expected") == 8
    for gpu in range(8):  # each has its own values
        assert back.value("gpu_memory_used_bytes", gpu=str(gpu), uuid=uuid(gpu)) == (10 + gpu) << 30
    assert fault.first or counted(back)  # whatever was reopened for it


def test_a_call_that_never_returns_is_left_alone_and_reported(driver: Driver, start: Starting) -> None:
    """Its GPU's values are gone after three intervals, though the driver is well again."""

    def threads() -> int:
        return len(list(Path(f"/proc/{exporter.process.pid}/task").iterdir()))

    exporter = start()
    exporter.until(all_ok)
    before = threads()
    driver.tell("gpus=8", "wedge=GetPowerUsage@3")
    exporter.until(hung("GetPowerUsage"))
    struck = time.monotonic()
    found = exporter.until(only_3("timeout"))
    assert in_time(time.monotonic() - struck, 2)
    driver.tell("gpus=8")
    lasting(exporter, only_3("timeout"))

    assert found.value("gpu_exporter_call_hung", gpu="3", uuid=uuid(3), call="GetPowerUsage") == 1
    assert not [
        labels for (_, labels) in found.samples if ("gpu", "3") in labels and ("sensor", "gpu") in labels
    ]
    assert threads() == before
    assert exporter.end()[0] == 0


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


@pytest.mark.world
def test_whichever_call_hangs_it_is_one_gpus_trouble_and_passes_with_it(
    driver: Driver, start: Starting
) -> None:
    """Those that are repeated once a GPU is back, each on a GPU of its own; GPU 0 has nothing to suffer."""
    most = 16

    def down(gpus: Iterable[int], reason: str) -> See:
        wanted = {gpu: reason if gpu in gpus else "ok" for gpu in range(most)}
        lost = {uuid(gpu) for gpu in gpus}
        others = {each for each in before if dict(each[1])["uuid"] not in lost}
        return lambda found: reasons(found) == wanted and others <= series(found)

    def lose(gpus: Iterable[int]) -> None:
        """So that everything is asked again, as at the start, of GPUs that are back."""
        driver.tell(f"gpus={most}", *(f"lost={gpu}:15" for gpu in gpus))
        exporter.until(down(gpus, "lost"))

    driver.tell(f"gpus={most}")
    # NVML is not reopened for the lost ones: those calls would be counted, too.
    exporter, before = start("--interval=0.2", "--retry=60"), set[Any]()
    before = series(exporter.until(down((), "ok")))
    lose(range(1, most))
    driver.forget_calls()
    driver.tell(f"gpus={most}")
    exporter.until(down((), "ok"))
    calls = iter(sorted({name for name, gpu in driver.calls() if gpu > 0} - {"GpmWindow"}))
    seen = 0
    while batch := dict(enumerate(islice(calls, most - 1), start=1)):
        seen += len(batch)
        lose(batch)
        driver.tell(f"gpus={most}", *(f"hang={name}@{gpu}" for gpu, name in batch.items()))
        exporter.until(down(batch, "timeout"))
        lasting(exporter, down(batch, "timeout"))
        driver.tell(f"gpus={most}")
        exporter.until(down((), "ok"))
    assert seen > 15


@pytest.mark.world
def test_whichever_call_hangs_while_nvml_is_opened_delays_no_page(driver: Driver, start: Starting) -> None:
    def waits(found: Scrape) -> bool:
        return nvml(found) in ("starting", "ok") and 3 not in shown(found)

    exporter = start("--interval=30")
    exporter.until(all_ok)
    exporter.end()
    calls = driver.calls()
    system = {name for name, gpu in calls if gpu < 0} - {"Shutdown", "EventSetFree", "GpmSampleFree"}
    for name in [*sorted(system), *("GetHandleByIndex@3", "GetUUID@3", "GetPciInfo@3")]:
        driver.tell("gpus=8", f"hang={name}")
        exporter = start("--interval=0.2", "--retry=60")
        if "@" in name or name in ("Init", "SystemGetDriverVersion", "DeviceGetCount"):
            exporter.until(lambda found: found.samples and waits(found))
            lasting(exporter, waits)
        driver.tell("gpus=8")
        found = exporter.until(lambda found: all_ok(found) and 3 in shown(found))
        assert found.value("gpu_exporter_nvml_reinit_total") == 0
        exporter.end()


def test_without_the_library_it_stays_up_says_so_and_finds_one_later(driver: Driver, start: Starting) -> None:
    (driver.folder / LIBRARY).unlink()
    exporter = start()
    exporter.until(nothing("library_not_found"))
    driver.install()
    exporter.until(all_ok)

    assert "NVML library_not_found: libnvidia-ml.so.1 was not found. Fix: " in exporter.end()[1]


def test_a_library_that_crashes_ends_the_process_to_be_started_again(driver: Driver, start: Starting) -> None:
    exporter = start()
    exporter.until(all_ok)
    driver.tell("gpus=8", "segv=GetPowerUsage")
    exporter.process.communicate(timeout=HANG_SECONDS)

    assert exporter.process.returncode == -signal.SIGABRT


@pytest.mark.world
def test_when_numbers_move_up_each_gpu_keeps_its_own_values(driver: Driver, start: Starting) -> None:
    exporter = start()
    before = {gpu: exporter.until(all_ok).value("gpu_memory_used_bytes", uuid=uuid(gpu)) for gpu in range(8)}
    driver.tell("gpus=8", "all=1")
    exporter.until(lambda found: nvml(found) != "ok")
    driver.tell("gpus=8", "absent=3", "xid=5:79:1")
    found = exporter.until(
        lambda found: nvml(found) == "ok" and found.value("gpu_xid_errors_total", uuid=uuid(5), xid="79") == 1
    )

    assert found.value("gpu_devices") == 7
    assert found.value("gpu_devices_expected") == 8
    assert found.value("gpu_up", gpu="3", uuid=uuid(3), reason="lost") == 0
    for gpu in OTHERS:
        number = str(gpu - (gpu > 3))
        assert found.value("gpu_up", gpu=number, uuid=uuid(gpu), reason="ok") == 1
        assert found.value("gpu_memory_used_bytes", gpu=number, uuid=uuid(gpu)) == before[gpu]
    assert ("null", -1) not in driver.calls()
    driver.tell("gpus=8")
    exporter.until(lambda found: all_ok(found) and 3 in shown(found))


def test_an_xid_error_is_counted_once_with_its_time(driver: Driver, start: Starting) -> None:
    exporter = start()
    assert not exporter.until(all_ok).all("gpu_xid_last_timestamp_seconds")
    driver.tell("gpus=8", "xid=3:79:1")
    found = exporter.until(lambda found: found.value("gpu_xid_errors_total", gpu="3", xid="79") == 1)

    assert abs((found.value("gpu_xid_last_timestamp_seconds", gpu="3", xid="79") or 0) - time.time()) < 60
    assert sum(found.all("gpu_xid_errors_total").values()) == 1


@pytest.mark.world
@pytest.mark.parametrize("code", [3, 999])
def test_what_a_driver_says_it_lacks_is_asked_for_again(driver: Driver, start: Starting, code: int) -> None:
    driver.tell("gpus=1", "profile=a100", f"error=GetPowerUsage:{code}", f"refuse=82:{code}")
    exporter = start("--interval=0.02")
    assert not shown(exporter.until(lambda found: shown(found) == {0}), "gpu_power_watts")
    driver.tell("gpus=1", "profile=a100")
    found = exporter.until(lambda found: shown(found, "gpu_power_watts") == {0})

    assert found.value("gpu_temperature_celsius", sensor="memory") == 60


# What is compared over time


def windows(driver: Driver) -> list[int]:
    """Milliseconds between two samples of a GPU's own counters that were compared, of all GPUs."""
    return [milliseconds for name, milliseconds in driver.calls() if name == "GpmWindow"]


@pytest.mark.world
def test_a_mean_does_not_reach_over_errors_and_leaves_no_sample(driver: Driver, start: Starting) -> None:
    def active(found: Scrape) -> bool:
        return shown(found, "gpu_sm_active_ratio") == set(range(8))

    exporter = start("--interval=0.2", "--retry=60")
    exporter.until(active)
    for said in (tuple(f"error=GpmSampleGet@{gpu}:999" for gpu in range(8)), ("lost=3:15",)):
        driver.tell("gpus=8", *said)
        exporter.until(lambda found: not shown(found, "gpu_sm_active_ratio") & {3})
        time.sleep(4 * exporter.slow)
        driver.tell("gpus=8")
        exporter.until(active)
    assert max(windows(driver)) / 1000 < 3 * exporter.slow
    exporter.end()
    calls = driver.calls()

    assert calls["GpmSampleAlloc", -1] > 16
    assert calls["GpmSampleFree", -1] == calls["GpmSampleAlloc", -1]


# MIG partitions that change


def instances(found: Scrape) -> set[tuple[str, str, str]]:
    """GPU instance, compute instance and profile of each."""
    reported = [dict(labels) for labels in found.all("gpu_mig_info", gpu="3", uuid=uuid(3))]
    assert len({labels["mig_uuid"] for labels in reported}) == len(reported)
    return {(each["gpu_instance_id"], each["compute_instance_id"], each["profile"]) for each in reported}


def active(found: Scrape) -> set[str]:
    return {dict(labels)["gpu_instance_id"] for labels in found.all("gpu_mig_sm_active_ratio", gpu="3")}


def changed(exporter: Exporter, true: See) -> Scrape:
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


def test_a_gpu_is_split_then_in_another_way_then_whole_again(driver: Driver, start: Starting) -> None:
    exporter = start("--interval=0.4", "--retry=0.3")  # slow enough for a busy machine to miss no reading
    exporter.until(lambda found: all_ok(found) and shown(found, "gpu_sm_active_ratio") == OTHERS | {3})
    driver.tell("gpus=8", *SPLIT)
    found = changed(exporter, lambda found: active(found) == {"7", "5"})
    assert instances(found) == {("7", "0", "1g.18gb"), ("5", "0", "1c.3g.71gb"), ("5", "1", "2c.3g.71gb")}
    assert shown(found) == OTHERS
    driver.tell("gpus=8", *SPLIT[:2], "instance=3:1:2:0:3g.71gb", "instance=3:2:5:0:1g.18gb")
    found = changed(exporter, lambda found: active(found) == {"7", "5", "2"})
    assert instances(found) == {("7", "0", "1g.18gb"), ("5", "0", "1g.18gb"), ("2", "0", "3g.71gb")}
    driver.tell("gpus=8")
    found = changed(exporter, lambda found: shown(found, "gpu_sm_active_ratio") == OTHERS | {3})
    assert (found.value("gpu_exporter_nvml_reinit_total") or 0) >= 3
    assert not found.all("gpu_mig_info")
    assert not found.all("gpu_exporter_collect_errors_total")


@pytest.mark.world
def test_a_split_gpu_does_not_wait_for_another_that_is_lost(driver: Driver, start: Starting) -> None:
    exporter = start("--interval=0.4", "--retry=300")
    exporter.until(all_ok)
    driver.tell("gpus=8", "lost=5:15")
    exporter.until(lambda found: reasons(found)[5] == "lost")
    driver.tell("gpus=8", *SPLIT, "lost=5:15")
    found = exporter.until(lambda found: reasons(found).get(3) == "ok" and active(found))

    assert reasons(found)[5] == "lost"
    reported = exporter.end()[1]
    assert f"GPU 5 ({uuid(5)}): lost\n" in reported
    assert f"GPU 3 ({uuid(3)}): mig_changed\nGPU 3 ({uuid(3)}): ok\n" in reported


@pytest.mark.world
def test_nothing_is_served_of_a_gpu_that_changed_until_nvml_is_reopened(
    driver: Driver, start: Starting
) -> None:
    exporter = start("--interval=0.2", "--retry=60")
    exporter.until(lambda found: 3 in shown(found))
    driver.tell("gpus=8", *SPLIT, "hang=Init")
    exporter.until(lambda found: reasons(found).get(3) == "mig_changed")
    lasting(
        exporter,
        lambda found: (
            reasons(found)[3] in ("mig_changed", "timeout", "starting")
            and not found.all("gpu_power_watts", gpu="3")
        ),
    )


@pytest.mark.world
def test_lost_while_split_a_gpu_comes_back_with_its_instances(driver: Driver, start: Starting) -> None:
    driver.tell("gpus=8", *SPLIT)
    exporter = start("--interval=0.2", "--retry=60")
    exporter.until(active)
    driver.tell("gpus=8", *SPLIT, "lost=3:15")
    assert not exporter.until(lambda found: reasons(found)[3] == "lost").all("gpu_mig_info")
    driver.tell("gpus=8", *SPLIT)
    found = exporter.until(active)
    assert len(instances(found)) == 3
    assert found.value("gpu_memory_used_bytes", gpu="3", uuid=uuid(3)) == 13 << 30  # by its place on the bus
    assert found.value("gpu_exporter_nvml_reinit_total") == 0


# In a container some outages end only with the container: then the exporter ends, once, to get a new one


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("version_mismatch", ("all=1", "init=18")),
        ("unknown", ("all=999", *DETACHED)),
        pytest.param("lost", ("all=15", *(f"lost={gpu}:15" for gpu in range(8))), marks=pytest.mark.world),
    ],
)
def test_it_ends_with_a_clear_line(
    driver: Driver, start: Starting, reason: str, said: tuple[str, ...]
) -> None:
    exporter = start(*QUICK, "--restart-after=1")
    exporter.until(all_ok)
    driver.tell("gpus=8", *said)
    code, _, errors = exporter.ended()

    assert code == FRESH
    assert errors.startswith(
        f"No GPU could be read for 1 s ({reason}), though they could be read before. Exiting "
    )
    assert errors.count("\n") == 1
    assert driver.calls()["Shutdown", -1] >= 1


@pytest.mark.parametrize(
    ("said", "first"),
    [
        (("init=18",), True),  # started again without a cure
        pytest.param(("all=1", "init=9"), False, marks=pytest.mark.world),
        pytest.param(("all=1", "init=4"), False, marks=pytest.mark.world),
        pytest.param(DETACHED[1:], False, marks=pytest.mark.world),  # one GPU works
    ],
)
def test_what_no_restart_cures_keeps_it_up(
    driver: Driver, start: Starting, said: tuple[str, ...], *, first: bool
) -> None:
    if first:
        driver.tell("gpus=8", *said)
    exporter = start(*QUICK, "--restart-after=1")
    if not first:
        exporter.until(all_ok)
        driver.tell("gpus=8", *said)
    exporter.until(lambda found: found.samples and not all_ok(found))
    time.sleep(3)
    assert not all_ok(exporter.scrape())
    driver.tell("gpus=8")
    exporter.until(all_ok)


def test_a_library_that_is_replaced_is_loaded_without_a_restart(driver: Driver, start: Starting) -> None:
    """As an upgrade of the driver on a machine does, where the file is not held by a mount."""
    exporter = start()
    assert exporter.until(all_ok).all("gpu_power_watts")
    driver.tell("gpus=8", "all=1", "init=18")
    exporter.until(lambda found: nvml(found) == "version_mismatch")
    (driver.folder / LIBRARY).unlink()
    exporter.until(lambda found: nvml(found) == "library_not_found")
    driver.install("nvmlDeviceGetPowerUsage")
    driver.tell("gpus=8")
    found = exporter.until(all_ok)

    assert not found.all("gpu_power_watts")
    assert found.all("gpu_exporter_unsupported", call="GetPowerUsage", reason="function_not_found")
    assert exporter.process.poll() is None
