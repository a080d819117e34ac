"""Wheels of nvidia-ml-py from 12.535 on, each with drivers from 535 to 590: the values are the driver's."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from exporter.gpu.nvml import errors, library
from tests.gpu.branches import BRANCHES, GONE_WITH_CUDA_14, Branch
from tests.gpu.driver import Driver
from tests.gpu.expected import of
from tests.gpu.exporter import all_ok, running
from tests.real.wheels import versions, wheel

PACKAGE = "nvidia-ml-py"
INSTALLED = "the installed one"


@pytest.mark.parametrize("version", [*versions(PACKAGE), INSTALLED])
def test_a_wheel_tells_all_that_the_driver_does(tmp_path: Path, version: str) -> None:
    path = "" if version == INSTALLED else str(wheel(PACKAGE, version))
    assert path in loaded(path)
    with ExitStack() as stack:
        exporters = {
            name: stack.enter_context(
                running("--interval=0.5", environment=on(tmp_path / name, branch), PYTHONPATH=path)
            )
            for name, branch in BRANCHES.items()
        }
        told = {name: of(exporter.until(all_ok, 30)) for name, exporter in exporters.items()}

    assert told == {name: branch.told for name, branch in BRANCHES.items()}


def test_a_wheel_that_no_longer_names_what_goes_with_cuda_14_misses_nothing(tmp_path: Path) -> None:
    text = Path(loaded("").strip()).read_text()
    (tmp_path / "pynvml.py").write_text(f"{text}\ndel {', '.join(GONE_WITH_CUDA_14)}\n")
    branch = BRANCHES["590"]
    environment = on(tmp_path / "driver", branch)
    with running("--interval=0.5", environment=environment, PYTHONPATH=str(tmp_path)) as exporter:
        assert of(exporter.until(all_ok)) == branch.told


def test_what_a_wheel_lacks_is_an_error_of_the_driver_s() -> None:
    with pytest.raises(library.Error) as raised:
        library.call("DeviceGetWhatComesWithTheNextDriver", None)

    assert raised.value.value == errors.FUNCTION_NOT_FOUND


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
