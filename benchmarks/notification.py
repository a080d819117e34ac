"""From the bad step written to the webhook received, at default settings."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from tests.e2e.stack import PAIRS, Stack

TRIES = 20
HEALTHY_STEPS = 12
SPREAD_SECONDS = 25.0


def run() -> Iterator[str]:
    yield "| Prometheus | Alertmanager | tries | p50, s | p95, s | max, s |"
    yield "|---|---|---|---|---|---|"
    for versions in PAIRS:
        with tempfile.TemporaryDirectory() as folder:
            taken = sorted(_tries(versions, Path(folder)))
        p50, p95 = (taken[min(len(taken) - 1, int(len(taken) * share))] for share in (0.5, 0.95))
        yield f"| {versions[0]} | {versions[1]} | {TRIES} | {p50:.1f} | {p95:.1f} | {taken[-1]:.1f} |"


def _tries(versions: tuple[str, str], folder: Path) -> list[float]:
    """Each try is a run of its own; their bad steps come at random moments."""
    dice = random.Random(7)
    with Stack(folder, versions) as stack, ThreadPoolExecutor(TRIES) as pool:
        names = [f"try-{number}" for number in range(TRIES)]
        for name in names:
            _log(stack, name, [dice.gauss(0.02, 0.002) for _ in range(HEALTHY_STEPS)])
        for name in names:
            stack.wait_step(name, HEALTHY_STEPS)
        waits = [dice.uniform(0, SPREAD_SECONDS) for _ in names]
        return list(pool.map(lambda name, wait: _try(stack, name, wait), names, waits))


def _try(stack: Stack, name: str, wait: float) -> float:
    """KL jumps for three steps: the third completes the condition of KLExplosion."""
    time.sleep(wait)
    _log(stack, name, [3.0, 3.1, 3.2], first=HEALTHY_STEPS + 1)
    written = time.time()
    stack.wait_sent(name, {"KLExplosion"})
    return next(
        message.at - written
        for message in stack.sink.received
        for alert in message.alerts
        if alert["labels"].get("run") == name and alert["labels"]["alertname"] == "KLExplosion"
    )


def _log(stack: Stack, name: str, kls: list[float], first: int = 1) -> None:
    with (stack.runs / f"{name}.jsonl").open("ab") as file:
        for step, kl in enumerate(kls, first):
            data = {"critic/score/mean": 0.5 + 0.01 * (step % 3), "actor/kl_loss": kl}
            file.write(orjson.dumps({"step": step, "data": data}) + b"\n")
