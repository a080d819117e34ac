"""What the notifier takes: from the webhook to the robot, its memory, and a thousand alerts in a minute."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import memory, quantiles, table
from tests.notifier.stack import Notifier, alert
from tests.real import eventually
from tests.real.robots import Feishu, Robot, WeCom

SINGLE, ALERTS, MINUTE_SECONDS = 30, 1000, 60.0
PAUSE_SECONDS = 1.0
"""Between single messages: slower than a robot's limit."""


@table("what", "robot", "p50, s", "p95, s", "requests", "resident memory, MB")
def notifier() -> Iterator[tuple[object, ...]]:
    """Single messages, then a thousand alerts within a minute, each a group of its own."""
    for kind in (Feishu, WeCom):
        for title, count, pause in (
            ("single messages", SINGLE, PAUSE_SECONDS if kind is Feishu else 4.0),
            ("1,000 alerts in a minute", ALERTS, MINUTE_SECONDS / ALERTS),
        ):
            robot: Robot = kind()
            with tempfile.TemporaryDirectory() as folder, Notifier(Path(folder), {"chat": robot}) as service:
                taken = _taken(service, robot, count if count == ALERTS or kind is Feishu else 10, pause)
                resident = memory(service.server.pid)
            assert robot.over_limit == 0
            p50, p95 = quantiles(taken, 0.5, 0.95)
            yield title, robot.kind, f"{p50:.2f}", f"{p95:.2f}", robot.requests, f"{resident:.0f}"


def _taken(service: Notifier, robot: Robot, count: int, pause: float) -> list[float]:
    """Seconds from each webhook to the message that names its run."""
    names, posted = [f"run-{number:04d}-" for number in range(count)], {}
    begun = time.monotonic()
    for number, name in enumerate(names):
        time.sleep(max(0.0, begun + number * pause - time.monotonic()))
        posted[name] = time.time()
        assert service.post(alert(run=name)) == 200
    eventually(lambda: all(any(name in text for text in robot.texts()) for name in names[-50:]))
    arrived: dict[str, float] = {}
    for at, text in zip(robot.times, robot.texts(), strict=True):
        for name in (each for each in names if each in text):
            arrived.setdefault(name, at)
    return [arrived[name] - posted[name] for name in names]
