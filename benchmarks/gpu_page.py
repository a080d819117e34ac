"""The GPU exporter's page for 8 GPUs: time to answer, memory, processor; beside the real nvitop-exporter.

Both read the same library, in which driver calls cost nothing, and then one in which a call hangs.
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import processes
from stepwatch.programs.packages import tools_folder
from tests.gpu.driver import Driver
from tests.real import Server, eventually, free_port

SCRAPES = 500
LOSSES = 10
POWER = (b"gpu_power_watts{", b"gpu_power_usage_W{")
GPU = (b'gpu="3"', b'index="3"')
PEER = "1.7.2"
ROOT = Path(__file__).parents[1]
HEAD = (
    "exporter", "samples", "first values after, s", "p50, ms", "p99, ms", "PSS, MB", "processes", "of a core",
    "p99 while a call hangs, ms", "values of that call then", "lost GPU reported after, s, median and worst",
)  # fmt: skip


def run() -> Iterator[str]:
    yield f"| {' | '.join(HEAD)} |"
    yield "|---" * len(HEAD) + "|"
    for name, command in (("`exporter.gpu`", _ours), (f"nvitop-exporter {PEER}", _peer)):
        with tempfile.TemporaryDirectory() as folder:
            page, figures = _measure(command, Driver(Path(folder)))
        yield f"| {name} | {' | '.join(figures)} |"
        with tempfile.TemporaryDirectory() as folder:
            floor = " | ".join(_floor(page, Path(folder)))
        yield f"| that page as a file, by `http.server` | | | {floor} | | | | | | |"


def _ours(port: int) -> list[str]:
    return [sys.executable, "-m", "exporter.gpu", f"--port={port}"]


def _peer(port: int) -> list[str]:
    """The peer in an environment of its own, kept with the other programs of the tests."""
    place = tools_folder() / f"nvitop-exporter-{PEER}"
    if not (place / "bin/nvitop-exporter").exists():
        venv.create(place, with_pip=True)
        wanted = f"nvitop-exporter=={PEER}"
        subprocess.run([place / "bin/pip", "install", "--quiet", wanted], check=True)
    return [str(place / "bin/nvitop-exporter"), f"--port={port}", "--bind-address=127.0.0.1", "--interval=1"]


def _measure(command: Callable[[int], list[str]], driver: Driver) -> tuple[bytes, list[str]]:
    """The page, and the figures in the order of the table."""
    driver.install()
    port = free_port()
    words, url = command(port), f"http://127.0.0.1:{port}/metrics"
    unlogged = {key: value for key, value in driver.environment.items() if key != "FAKE_NVML_LOG"}
    started = time.perf_counter()
    with Server(words, url, cwd=ROOT, env=unlogged) as server:
        while b'="7",' not in _page(url):
            time.sleep(0.01)
        first = time.perf_counter() - started
        core, page, times = _core_share(server.pid), _page(url), _times(url)
        pss = [processes.proportional(pid) for pid in processes.family(server.pid)]
        driver.tell("gpus=8", "hang=GetPowerUsage")
        time.sleep(4)
        hanging, power = _times(url), _power(_page(url))
        driver.tell("gpus=8")
        delays = sorted(_lost(driver, url) for _ in range(LOSSES))
    return page, [
        str(sum(not line.startswith(b"#") for line in page.splitlines())),
        f"{first:.2f}",
        *_percentiles(times),
        f"{sum(pss):.1f}",
        str(len(pss)),
        f"{core:.1%}",
        _percentiles(hanging)[1],
        str(power),
        f"{delays[len(delays) // 2]:.2f}, {delays[-1]:.2f}",
    ]


def _lost(driver: Driver, url: str) -> float:
    """Seconds from losing a GPU until no value of it is served any more; it comes back afterwards."""
    eventually(lambda: _value(_page(url)) is not None)
    time.sleep(random.uniform(0, 2))
    driver.tell("gpus=8", "lost=3:15")
    began = time.perf_counter()
    while _value(_page(url)) is not None:
        time.sleep(0.01)
    driver.tell("gpus=8")
    return time.perf_counter() - began


def _value(page: bytes) -> float | None:
    """The power draw of the GPU that is lost now and then; None if it is missing or not a number."""
    lines = (
        line for line in page.splitlines() if line.startswith(POWER) and any(map(line.__contains__, GPU))
    )
    values = [float(line.rsplit(b" ", 1)[1]) for line in lines]
    return values[0] if values and not math.isnan(values[0]) else None


def _floor(page: bytes, folder: Path) -> list[str]:
    """What this machine needs for a page of that size at that moment, whichever server answers."""
    (folder / "metrics").write_bytes(page)
    port = free_port()
    words = [sys.executable, "-m", "http.server", str(port), "--bind=127.0.0.1", f"--directory={folder}"]
    url = f"http://127.0.0.1:{port}/metrics"
    with Server(words, url):
        return _percentiles(_times(url))


def _power(page: bytes) -> int:
    """How many values of the power draw, which cannot be known while its call hangs."""
    return sum(line.startswith(POWER) for line in page.splitlines())


def _times(url: str) -> list[float]:
    return sorted(_scrapes(url))


def _percentiles(times: list[float]) -> list[str]:
    return [f"{1e3 * times[int(len(times) * share)]:.2f}" for share in (0.5, 0.99)]


def _core_share(pid: int) -> float:
    """Share of a core that a process and its children use."""
    used, began = processes.core_seconds(pid), time.perf_counter()
    time.sleep(20)
    return (processes.core_seconds(pid) - used) / (time.perf_counter() - began)


def _scrapes(url: str) -> Iterator[float]:
    """Seconds for each scrape."""
    for _ in range(SCRAPES):
        time.sleep(0.01)
        started = time.perf_counter()
        _page(url)
        yield time.perf_counter() - started


def _page(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return reply.read()
