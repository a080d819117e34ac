"""``python -m exporter.gpu``: its flags and what it says to people."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.gpu.exporter import ROOT, Exporter, all_ok
from tests.real import free_port
from tests.real.waiting import HANG_SECONDS

Starting = Callable[..., Exporter]


def refused(*flags: str, **variables: str) -> str:
    """What the exporter says when it does not start."""
    exporter = Exporter(*flags, **variables)
    try:
        out, errors = exporter.process.communicate(timeout=HANG_SECONDS)
    finally:
        exporter.process.kill()
    assert exporter.process.returncode == 2
    assert out == ""
    assert "Traceback" not in errors
    return errors


def test_flags_win_over_variables(start: Starting) -> None:
    port = free_port()
    exporter = start("--port", str(port), "--listen", "127.0.0.1", STEPWATCH_GPU_PORT="1")
    exporter.port = port
    exporter.until(all_ok)
    code, out, errors = exporter.end()

    assert (code, errors) == (0, "")
    assert out.startswith(f"http://127.0.0.1:{port}/metrics shows the GPUs of this machine\n")
    assert out.endswith("NVML ok: NVML answers.\n")


def test_variables_say_it_as_well_and_the_other_exporters_are_not_its_own(start: Starting) -> None:
    exporter = start(
        "--retry=1",
        STEPWATCH_GPU_BACKEND="demo",
        STEPWATCH_GPU_INTERVAL="0.2",
        STEPWATCH_PORT="http",
        STEPWATCH_LISTEN="nowhere",
    )

    assert exporter.until(all_ok).all("gpu_driver_info", driver_version="demo")


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--port", "http", "'http' is no port. Expected a number from 1 to 65535."),
        ("--interval", "1s", "'1s' is no positive number. Expected one such as 15 or 0.5."),
        ("--retry", "0", "'0' is no positive number"),
        ("--hang", "inf", "'inf' is no positive number"),
        ("--backend", "rocm", "'rocm' is no backend. Expected nvml or demo."),
    ],
)
def test_a_bad_value_is_told_with_its_flag_or_its_variable(flag: str, value: str, expected: str) -> None:
    variable = f"STEPWATCH_GPU_{flag.strip('-').upper()}"

    assert f"argument {flag}: {expected}" in refused(f"{flag}={value}")
    assert f"variable {variable}: {expected}" in refused(**{variable: value})


def test_a_port_in_use_is_told_with_its_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("--port", str(port))

    assert f"--port {port}" in said
    assert "Fix: " in said


def test_help_names_the_variables() -> None:
    command = [sys.executable, "-m", "exporter.gpu", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert "STEPWATCH_GPU_PORT" in done.stdout
    assert "--backend" in done.stdout
