"""A hundred thousand readings of eight GPUs that are lost, split, in error and in use: what grows."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.gpu.driver import Driver
from tests.gpu.exporter import ROOT

CYCLES = 100_000
HEAD = ("after cycles", "resident, MB", "Python objects", "threads", "files", "errors counted")


def run() -> Iterator[str]:
    yield f"| {' | '.join(HEAD)} |"
    yield "|---" * len(HEAD) + "|"
    for row in soak(CYCLES):
        keys = ("objects", "threads", "files", "errors")
        yield f"| {row['cycle']} | {row['resident']:.1f} | {' | '.join(str(row[key]) for key in keys)} |"


def soak(cycles: int) -> Iterator[dict[str, float]]:
    """What the process takes after each tenth of the cycles."""
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(Path(folder))
        driver.install()
        unlogged = {key: value for key, value in driver.environment.items() if key != "FAKE_NVML_LOG"}
        command = [sys.executable, "-m", "tests.gpu.soak", str(cycles)]
        with subprocess.Popen(command, cwd=ROOT, env=unlogged, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield from map(json.loads, process.stdout)
        assert process.returncode == 0
