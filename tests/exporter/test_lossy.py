"""Natively the services log into files: a full disk must not end them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.door.__main__ import METRICS
from stepwatch import pages
from stepwatch.environment import CHECKOUT
from tests.real import free_port
from tests.real.waiting import eventually


@pytest.mark.parametrize(
    ("module", "flags"),
    [
        ("exporter.runs", ["--port={port}", "--path=."]),
        ("exporter.gpu", ["--port={port}", "--backend=demo", "--sick=5"]),
        ("exporter.watchdog", ["--port={port}"]),
        ("exporter.door", ["--prometheus-port={port}", "--alertmanager-port={other}"]),
    ],
)
def test_a_service_whose_log_cannot_be_written_serves_on(
    module: str, flags: list[str], tmp_path: Path
) -> None:
    port = free_port()
    words = [flag.format(port=port, other=free_port()) for flag in flags]
    command = [sys.executable, "-m", module, *words]
    with Path("/dev/full").open("w") as full:
        exporter = subprocess.Popen(
            command, cwd=tmp_path, env={"PYTHONPATH": str(CHECKOUT)}, stdout=full, stderr=full
        )
    try:
        page = f"http://127.0.0.1:{port}{METRICS if module == 'exporter.door' else '/metrics'}"
        eventually(lambda: exporter.poll() is not None or pages.read(page) is not None)
        assert exporter.poll() is None
    finally:
        exporter.terminate()
        assert exporter.wait() == 0
