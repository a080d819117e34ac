"""The demo in containers: how soon its alerts fire, and what memory each container takes.

Images are there already, as after a first pull.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import picture
from tests.compose.checkout import Checkout
from tests.real.docker import Docker, standins

ALERTS = ("KLExplosion", "RewardStagnation", "Stalled", "GPUXid")
PATIENCE = 240
MIB = 2**20


def run() -> Iterator[str]:
    """Measure both, and draw the picture of the README."""
    with tempfile.TemporaryDirectory() as folder, Docker() as docker:
        docker.load(standins())
        checkout = Checkout(Path(folder) / "stepwatch", docker)
        checkout.compose("--profile=demo", "build", "--quiet")
        begun = time.time()
        try:
            yield from _alerts(checkout, begun)
            yield ""
            yield from _memory(checkout)
            picture.FILE.write_text(picture.draw(checkout.url("prometheus"), begun), encoding="utf-8")
        finally:
            checkout.compose("--profile=demo", "down", "--volumes", "--timeout=5")


def _alerts(checkout: Checkout, begun: float) -> Iterator[str]:
    done = checkout.stepwatch("up", "--demo")
    assert done.returncode == 0, done.stdout + done.stderr
    yield "| from `up` to | seconds |"
    yield "|---|---|"
    yield f"| all containers healthy | {time.time() - begun:.0f} |"
    waiting = set(ALERTS)
    while waiting:
        for name in sorted(waiting & {name for name, _ in checkout.firing()}):
            yield f"| {name} in Alertmanager | {time.time() - begun:.0f} |"
            waiting.remove(name)
        assert time.time() - begun < PATIENCE, f"still silent: {waiting}"
        time.sleep(0.5)
    time.sleep(20)  # so that the picture shows what comes after


def _memory(checkout: Checkout) -> Iterator[str]:
    """Working set after the demo's three minutes, as the limit counts it."""
    yield "| container | memory, MiB | limit, MiB | of it |"
    yield "|---|---|---|---|"
    stats = checkout.docker.docker("stats", "--no-stream", "--format={{json .}}").splitlines()
    used = {each["ID"]: each["MemUsage"] for each in map(json.loads, stats)}
    for name, container in sorted(checkout.containers().items()):
        mib = _mib(used[container["Id"][:12]].split(" / ")[0])
        limit = container["HostConfig"]["Memory"] / MIB
        yield f"| {name} | {mib:.1f} | {limit:.0f} | {100 * mib / limit:.0f} % |"


def _mib(text: str) -> float:
    units = {"GiB": 1024.0, "MiB": 1.0, "KiB": 1 / 1024, "B": 1 / MIB}
    unit = next(unit for unit in units if text.endswith(unit))
    return float(text.removesuffix(unit)) * units[unit]
