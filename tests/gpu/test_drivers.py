"""Drivers from 535 on and wheels of nvidia-ml-py from 12.535 on: what one lacks costs nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.gpu.driver import LIBRARY, Driver
from tests.gpu.expected import CARDS, H200, KINDS, SUM, Values, lacking, of
from tests.gpu.exporter import Starting, all_ok, running, shown
from tests.real.wheels import versions, wheel

PACKAGE, INSTALLED = "nvidia-ml-py", "the installed one"
OLDEST, *BETWEEN, NEWEST = versions(PACKAGE)
GONE_WITH_CUDA_14 = tuple(
    f"nvmlDeviceGet{name}" for name in ("Temperature", "CurrentClocksThrottleReasons", "GpuFabricInfo")
)
NEW_IN_535 = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo_v2")
NEW_IN_550 = ("nvmlDeviceGetGpuFabricInfoV",)
NEW_IN_570 = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature")
METRICS_OF_570 = {
    "gpu_recovery_action",
    "gpu_temperature_margin_celsius",
    "gpu_temperature_threshold_celsius",
}
NEEDED = {
    f"nvmlDeviceGet{name}"
    for name in ("Count_v2", "HandleByIndex_v2", "UUID", "PciInfo_v3", "UtilizationRates")
}
"""Without these there is no GPU to tell of, or nothing to tell."""


class Branch(NamedTuple):
    """A driver. ``lacks``: metrics of an H200 that it cannot tell; ``kinds``: whether of throttling."""

    version: str
    kinds: bool
    missing: tuple[str, ...] = ()
    lacks: frozenset[str] = frozenset()

    def load(self, folder: Path) -> dict[str, str]:
        """Have this driver, with eight H200; the variables of a program that finds it."""
        folder.mkdir(exist_ok=True)
        driver = Driver(folder)
        driver.install(*self.missing)
        driver.tell("gpus=8", f"driver={self.version}")
        return driver.environment

    @property
    def reported(self) -> Values:
        """What it tells of an H200."""
        values = {key: value for key, value in H200.items() if key[0] not in self.lacks and key not in KINDS}
        return {**values, **(KINDS if self.kinds else SUM)}


BRANCHES = {
    "535": Branch("535.183.01", False, (*NEW_IN_550, *NEW_IN_570), frozenset(METRICS_OF_570)),
    "550": Branch("550.163.01", False, NEW_IN_570, frozenset(METRICS_OF_570)),
    "570": Branch("570.211.01", False),
    "575": Branch("575.57.08", True),
    "580.65": Branch("580.65.06", True),
    "580.76": Branch("580.76.05", False),
    "580.82": Branch("580.82.09", True),
    "590": Branch("590.48.01", True, GONE_WITH_CUDA_14),
    "unknown": Branch("a driver that nobody knows", False, lacks=frozenset({"gpu_recovery_action"})),
}  # fmt: skip
"""The library answers at the other drivers' numbers for throttling with 77 s of something else."""


@pytest.mark.parametrize(
    "version",
    [*(pytest.param(version, marks=pytest.mark.world) for version in BETWEEN), OLDEST, NEWEST, INSTALLED],
)
def test_each_wheel_reports_all_that_each_driver_does(tmp_path: Path, version: str) -> None:
    path = "" if version == INSTALLED else str(wheel(PACKAGE, version))
    assert path in loaded(path)
    with ExitStack() as stack:
        exporters = {
            name: stack.enter_context(
                running("--interval=0.5", environment=branch.load(tmp_path / name), PYTHONPATH=path)
            )
            for name, branch in BRANCHES.items()
        }
        reported = {name: of(exporter.until(all_ok)) for name, exporter in exporters.items()}

    assert reported == {name: branch.reported for name, branch in BRANCHES.items()}


@pytest.mark.parametrize(
    "version", [pytest.param(version, marks=pytest.mark.world) for version in BETWEEN] + [OLDEST]
)
def test_a_wheel_reports_counters_instances_and_processes(tmp_path: Path, version: str) -> None:
    environment = BRANCHES["580.82"].load(tmp_path)
    split = ("mig=1", "instance=1:0:7:0:1g.18gb")
    Driver(tmp_path).tell("gpus=2", *split, "process=0:compute:5000001:300:20")
    path = str(wheel(PACKAGE, version))
    with running("--interval=0.3", "--processes=2", environment=environment, PYTHONPATH=path) as exporter:
        found = exporter.until(lambda found: found.all("gpu_process_sm_utilization_ratio"))

    assert found.value("gpu_sm_active_ratio", gpu="0") == 0.02
    assert found.value("gpu_mig_sm_active_ratio", gpu="1", gpu_instance_id="7") == 0.10
    assert found.value("gpu_mig_memory_total_bytes", gpu_instance_id="7") == 18 << 30
    assert found.value("gpu_process_memory_bytes", gpu="0", pid="5000001") == 300 << 20
    assert found.value("gpu_process_sm_utilization_ratio", gpu="0", pid="5000001") == 0.2


def test_a_wheel_that_no_longer_names_what_goes_with_cuda_14_misses_nothing(tmp_path: Path) -> None:
    text = Path(loaded("").strip()).read_text()
    (tmp_path / "pynvml.py").write_text(f"{text}\ndel {', '.join(GONE_WITH_CUDA_14)}\n")
    branch = BRANCHES["590"]
    environment = branch.load(tmp_path / "driver")
    with running("--interval=0.5", environment=environment, PYTHONPATH=str(tmp_path)) as exporter:
        assert of(exporter.until(all_ok)) == branch.reported


def loaded(path: str) -> str:
    """Where Python finds the module."""
    command = [sys.executable, "-c", "import pynvml; print(pynvml.__file__)"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout


@pytest.mark.parametrize("card", ["h200", *(pytest.param(card, marks=pytest.mark.world) for card in CARDS)])
def test_before_535_the_older_names_do(driver: Driver, start: Starting, card: str) -> None:
    """Memory that is reserved counts as used there."""
    driver.install(*NEW_IN_535)
    driver.tell("gpus=8", f"profile={card}")
    reported = of(start().until(all_ok))

    assert reported == {
        **{key: value for key, value in CARDS[card].items() if key[0] != "gpu_memory_reserved_bytes"},
        ("gpu_memory_used_bytes", ""): (13 << 30) + 643825664,
    }


def test_a_library_that_lacks_almost_everything_gives_the_rest(driver: Driver, start: Starting) -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", driver.folder / LIBRARY], capture_output=True, text=True, check=True
    ).stdout.split()
    driver.install(*{symbol for symbol in symbols if symbol.startswith("nvmlDevice")} - NEEDED)
    driver.tell("gpus=8")
    exporter = start()
    found = exporter.until(all_ok)

    assert shown(found) == set(range(8))
    assert {metric for metric, _ in of(found)} == {
        "gpu_up",
        "gpu_utilization_ratio",
        "gpu_memory_controller_utilization_ratio",
        "gpu_xid_errors_total",
    }
    assert set(lacking(found).values()) == {"function_not_found"}
    assert not found.all("gpu_exporter_collect_errors_total")
    assert exporter.end()[2] == ""
