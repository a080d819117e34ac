"""``python -m exporter.gpu``: its flags and what it says to people."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.exporter import ROOT, Exporter, Starting, all_ok
from tests.real import free_port
from tests.records import refusal


def refused(*flags: str) -> str:
    """What the exporter says when it does not start."""
    return refusal(Exporter(*flags).process)


def test_a_flag_wins_over_the_file(start: Starting, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "gpu.json").write_text('{"port": 1, "listen": "nowhere"}')
    exporter = start("--port", str(port), "--listen", "127.0.0.1", f"--config.file={tmp_path / 'gpu.json'}")
    exporter.port = port
    exporter.until(all_ok)
    code, out, errors = exporter.end()

    assert (code, errors) == (0, "")
    assert out.startswith(f"http://127.0.0.1:{port}/metrics shows the GPUs of this machine\n")
    assert out.endswith("NVML ok: NVML answers.\n")


def test_a_file_sets_what_flags_set(start: Starting, tmp_path: Path) -> None:
    (tmp_path / "gpu.json").write_text('{"backend": "demo", "interval": 0.2, "proc": null}')
    exporter = start("--retry=1", f"--config.file={tmp_path / 'gpu.json'}")

    assert exporter.until(all_ok).all("gpu_driver_info", driver_version="demo")


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--port", "http", "'http' is not a port. Expected a number from 1 to 65535."),
        ("--interval", "1s", "'1s' is not a positive number. Expected one such as 15 or 0.5."),
        ("--retry", "0", "'0' is not a positive number"),
        ("--idle", "inf", "'inf' is not a positive number"),
        ("--backend", "rocm", "'rocm' is not a backend. Expected nvml or demo."),
    ],
)
def test_a_bad_value_is_refused_with_its_flag_or_its_file_and_key(
    flag: str, value: str, expected: str, tmp_path: Path
) -> None:
    file, key = tmp_path / "gpu.json", flag.strip("-")
    file.write_text(json.dumps({key: value}))

    assert f"argument {flag}: {expected}" in refused(f"{flag}={value}")
    said = refused(f"--config.file={file}")
    assert said.startswith(f"{file}: {key}: {expected}")
    assert " Expected " in said
    assert " Fix: correct the file" in said


def test_a_port_in_use_is_reported_with_its_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("--port", str(port))

    assert f"--port {port}" in said
    assert "Fix: " in said


def test_help_names_the_file_and_the_flags() -> None:
    command = [sys.executable, "-m", "exporter.gpu", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert "--config.file" in done.stdout
    assert "--backend" in done.stdout
