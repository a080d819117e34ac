"""The GPU exporter: its page beside the real nvitop-exporter's, and what grows over many readings.

Both read the same library, in which driver calls cost nothing, and then one in which a call hangs.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import ROOT, family, get, proportional, quantiles, samples, seconds, shares, table
from stepwatch.system.releases import tools_folder
from tests.gpu.driver import Driver
from tests.real import Server, eventually, free_port

SCRAPES, LOSSES, CORE_SECONDS = 500, 10, 20
POWER = (b"gpu_power_watts{", b"gpu_power_usage_W{")
LOST = (b'gpu="3"', b'index="3"')
PEER = "1.7.2"
CYCLES = 100_000


@table(
    "exporter", "samples", "first values after, s", "p50, ms", "p99, ms", "PSS, MB", "processes", "of a core",
    "p99 while a call hangs, ms", "values of that call then", "lost GPU reported after, s, median and worst",
)  # fmt: skip
def gpu_page() -> Iterator[tuple[object, ...]]:
    """The page for 8 GPUs: time to answer, memory, processor; beside that of the peer."""
    ours = [sys.executable, "-m", "exporter.gpu"]
    for name, command in (("`exporter.gpu`", ours), (f"nvitop-exporter {PEER}", _peer())):
        with tempfile.TemporaryDirectory() as folder:
            page, figures = _measure(command, Driver(Path(folder)))
        yield name, *figures
        with tempfile.TemporaryDirectory() as folder:
            floor = _floor(page, Path(folder))
        yield "that page as a file, by `http.server`", "", "", *floor, *[""] * 6


def _peer() -> list[str]:
    """The peer in an environment of its own, beside the other programs of the tests."""
    folder = tools_folder() / f"nvitop-exporter-{PEER}"
    if not (folder / "bin/nvitop-exporter").exists():
        venv.create(folder, with_pip=True)
        package = f"nvitop-exporter=={PEER}"
        subprocess.run([folder / "bin/pip", "install", "--quiet", package], check=True)
    return [str(folder / "bin/nvitop-exporter"), "--bind-address=127.0.0.1", "--interval=1"]


def _measure(command: list[str], driver: Driver) -> tuple[bytes, list[str]]:
    """The page, and the figures in the order of the table."""
    driver.install()
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    began = time.perf_counter()
    with Server([*command, f"--port={port}"], url, cwd=ROOT, env=_unlogged(driver)) as server:
        while b'="7",' not in get(url):
            time.sleep(0.01)
        first = time.perf_counter() - began
        [core] = shares(server.pid, meanwhile=lambda: time.sleep(CORE_SECONDS))
        page, times = get(url), _times(url)
        pss = [proportional(pid) for pid in family(server.pid)]
        driver.tell("gpus=8", "hang=GetPowerUsage")
        time.sleep(4)
        hanging, power = _times(url), sum(line.startswith(POWER) for line in get(url).splitlines())
        driver.tell("gpus=8")
        lost = quantiles([_lost(driver, url) for _ in range(LOSSES)], 0.5, 1)
    return page, [
        str(samples(page)),
        f"{first:.2f}",
        *times,
        f"{sum(pss):.1f}",
        str(len(pss)),
        f"{core:.1%}",
        hanging[1],
        str(power),
        f"{lost[0]:.2f}, {lost[1]:.2f}",
    ]


def _unlogged(driver: Driver) -> dict[str, str]:
    return {key: value for key, value in driver.environment.items() if key != "FAKE_NVML_LOG"}


def _times(url: str) -> list[str]:
    """p50 and p99 of scrapes, in ms."""
    times = []
    for _ in range(SCRAPES):
        time.sleep(0.01)
        times.append(seconds(get, url))
    return [f"{1e3 * each:.2f}" for each in quantiles(times, 0.5, 0.99)]


def _lost(driver: Driver, url: str) -> float:
    """Seconds from losing a GPU until no value of it is served any more; it comes back afterwards."""
    eventually(lambda: _has_power(get(url)))
    time.sleep(random.uniform(0, 2))
    driver.tell("gpus=8", "lost=3:15")
    began = time.perf_counter()
    while _has_power(get(url)):
        time.sleep(0.01)
    driver.tell("gpus=8")
    return time.perf_counter() - began


def _has_power(page: bytes) -> bool:
    """Whether the power draw of the GPU that is lost now and then is a number."""
    lines = (
        line for line in page.splitlines() if line.startswith(POWER) and any(gpu in line for gpu in LOST)
    )
    line = next(lines, None)
    return line is not None and not math.isnan(float(line.rsplit(b" ", 1)[1]))


def _floor(page: bytes, folder: Path) -> list[str]:
    """What this machine needs for a page of that size at that moment, from any server."""
    (folder / "metrics").write_bytes(page)
    port = free_port()
    words = [sys.executable, "-m", "http.server", str(port), "--bind=127.0.0.1", f"--directory={folder}"]
    url = f"http://127.0.0.1:{port}/metrics"
    with Server(words, url):
        return _times(url)


@table("after cycles", "resident, MB", "Python objects", "threads", "files", "errors counted")
def gpu_soak() -> Iterator[tuple[object, ...]]:
    """A hundred thousand readings of eight GPUs that are lost, split, in error and in use: what grows."""
    for row in soak(CYCLES):
        figures = (row[key] for key in ("objects", "threads", "files", "errors"))
        yield row["cycle"], f"{row['resident']:.1f}", *figures


def soak(cycles: int) -> Iterator[dict[str, float]]:
    """What the process takes after each tenth of the cycles."""
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(Path(folder))
        driver.install()
        command = [sys.executable, "-m", "tests.gpu.soak", str(cycles)]
        with subprocess.Popen(
            command, cwd=ROOT, env=_unlogged(driver), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            yield from map(json.loads, process.stdout)
        assert process.returncode == 0
