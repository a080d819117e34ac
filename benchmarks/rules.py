"""What judging the rules costs with 100 live runs, at the default interval, by Prometheus's own metrics.

Beside it the share of a core that the same Prometheus uses in all, scrapes and storage included.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import idle, processes
from tests.e2e.stack import PAIRS, Stack

RUNS = idle.LIVE
WARM_SECONDS = 45.0
MEASURED_SECONDS = 60.0
TAKEN = "sum(prometheus_rule_evaluation_duration_seconds_sum)"
"""Seconds that Prometheus has spent on judging rules, one after the other."""

OVERRIDES = (0, 1, 50, 200)


def run() -> Iterator[str]:
    yield (
        "| Prometheus | live runs | series a run | overrides | rules, kB | rules, of a core "
        "| Prometheus, of a core |"
    )
    yield "|---|---|---|---|---|---|---|"
    for versions in PAIRS:
        for overrides in OVERRIDES:
            with tempfile.TemporaryDirectory() as folder:
                yield _measure(versions, overrides, Path(folder))


def _measure(versions: tuple[str, str], overrides: int, folder: Path) -> str:
    settings: dict[str, Any] = {"overrides": [_override(number) for number in range(overrides)]}
    with Stack(folder, versions, scrape=[], **settings) as stack:
        growing = idle.live(stack.runs)
        stack.wait_until(lambda: len(stack.query("rl_step")) == RUNS)
        with idle.Trainers(growing):
            time.sleep(WARM_SECONDS)
            rules, whole = _shares(stack)
        size = sum(file.stat().st_size for file in folder.rglob("generated/rules/*.yml"))
        series = len(stack.query('{__name__=~"rl_.+",run="run-0"}'))
    shares = f"{100 * rules:.1f} % | {100 * whole:.1f} %"
    return f"| {versions[0]} | {RUNS} | {series} | {overrides} | {size / 1000:.0f} | {shares} |"


def _override(number: int) -> dict[str, Any]:
    """Other limits in three blocks, each its own, for one run in a hundred."""
    own = {
        "KL": {"critical": {"above_start": 2 + number / 100}},
        "Reward": {"warning": {"stddevs": 3 + number / 1000}},
        "Stalled": {"intervals": 6 + number},
    }
    return {"runs": f"run-{number}", "alerts": own}


def _shares(stack: Stack) -> tuple[float, float]:
    """Share of a core for rules, and for Prometheus as a whole."""
    pid, began = stack.prometheus.pid, time.perf_counter()
    used, taken = processes.core_seconds(pid), _taken(stack)
    time.sleep(MEASURED_SECONDS)
    passed = time.perf_counter() - began
    return (_taken(stack) - taken) / passed, (processes.core_seconds(pid) - used) / passed


def _taken(stack: Stack) -> float:
    return float(stack.query(TAKEN)[0]["value"][1])
