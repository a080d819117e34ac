"""What the bridge takes: from the webhook to the robot, and its memory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import memory, quantiles, table
from tests.bridge.webhook import Bridge, alert
from tests.real.robots import Feishu, Robot, WeCom

MESSAGES = 20
PAUSE_SECONDS = {Feishu: 1.0, WeCom: 4.0}
"""Slower than a robot's limit."""


@table("robot", "p50, ms", "p95, ms", "resident memory, MB")
def bridge() -> Iterator[tuple[object, ...]]:
    """From the post of a webhook to its answer, which comes after the robot's."""
    for kind, pause in PAUSE_SECONDS.items():
        robot: Robot = kind()
        with tempfile.TemporaryDirectory() as folder, Bridge(Path(folder), {"chat": robot}) as service:
            seconds = []
            for number in range(MESSAGES):
                begun = time.monotonic()
                assert service.post(alert(run=f"run-{number}"))[0] == 200
                seconds.append(time.monotonic() - begun)
                time.sleep(pause)
            resident = memory(service.server.pid)
        p50, p95 = quantiles(seconds, 0.5, 0.95)
        yield robot.kind, f"{1000 * p50:.0f}", f"{1000 * p95:.0f}", f"{resident:.0f}"
