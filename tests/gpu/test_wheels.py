"""Wheels of nvidia-ml-py from 12.535 on, each with drivers from 535 to 590: the values are the driver's."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.gpu.branches import BRANCHES, GONE_WITH_CUDA_14, Branch
from tests.gpu.driver import Driver
from tests.gpu.expected import of
from tests.gpu.exporter import all_ok, running
from tests.real.wheels import versions, wheel

PACKAGE = "nvidia-ml-py"
INSTALLED = "the installed one"
OLDEST, *BETWEEN, NEWEST = versions(PACKAGE)


@pytest.mark.parametrize(
    "version",
    [OLDEST, *(pytest.param(version, marks=pytest.mark.world) for version in BETWEEN), NEWEST, INSTALLED],
)
def test_a_wheel_reports_all_that_the_driver_does(tmp_path: Path, version: str) -> None:
    path = "" if version == INSTALLED else str(wheel(PACKAGE, version))
    assert path in loaded(path)
    with ExitStack() as stack:
        exporters = {
            name: stack.enter_context(
                running("--interval=0.5", environment=on(tmp_path / name, branch), PYTHONPATH=path)
            )
            for name, branch in BRANCHES.items()
        }
        reported = {name: of(exporter.until(all_ok)) for name, exporter in exporters.items()}

    assert reported == {name: branch.reported for name, branch in BRANCHES.items()}


@pytest.mark.parametrize("version", versions(PACKAGE))
def test_a_wheel_reports_counters_instances_and_processes(tmp_path: Path, version: str) -> None:
    environment = on(tmp_path / "driver", BRANCHES["580.82"])
    split = ("mig=1", "instance=1:0:7:0:1g.18gb")
    Driver(tmp_path / "driver").tell("gpus=2", *split, "process=0:compute:5000001:300:20")
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
    environment = on(tmp_path / "driver", branch)
    with running("--interval=0.5", environment=environment, PYTHONPATH=str(tmp_path)) as exporter:
        assert of(exporter.until(all_ok)) == branch.reported


def loaded(path: str) -> str:
    """Where Python finds the module."""
    command = [sys.executable, "-c", "import pynvml; print(pynvml.__file__)"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def on(folder: Path, branch: Branch) -> dict[str, str]:
    """The variables of a program that finds this driver."""
    folder.mkdir()
    driver = Driver(folder)
    branch.load(driver)
    return driver.environment
