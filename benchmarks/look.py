"""What a look at live runs costs in which nothing is new, beside a bare loop that looks at the same files."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from benchmarks import idle, logs
from exporter.runs.collector import Collector, Settings

LOOKS = 500
PAUSE_SECONDS = 0.02


def run() -> Iterator[str]:
    yield "| live runs | look: least, ms | p50, ms | `os.stat` of each log: least, ms | a look takes |"
    yield "|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        paths = idle.live(Path(folder))
        watch = Collector(Settings(paths=(folder,)))
        while watch.look() or not watch.caught_up:
            pass
        for number, path in enumerate(paths):
            with path.open("ab") as file:
                file.write(b"".join(islice(logs.lines("verl_jsonl", number), idle.STEPS, idle.STEPS + 1)))
        while watch.look():
            pass
        looks = _measured(watch.look)
        bare = _measured(lambda: [os.stat(path) for path in paths])  # noqa: PTH116  (as bare as can be)
    yield (
        f"| {len(paths)} | {looks[0]:.2f} | {looks[LOOKS // 2]:.2f} | {bare[0]:.2f} "
        f"| {looks[0] / bare[0]:.1f} times as long |"
    )


def _measured(work: Callable[[], object]) -> list[float]:
    """Processor time of all threads for each call in ms, the least first."""
    taken = []
    for _ in range(LOOKS):
        time.sleep(PAUSE_SECONDS)
        began = time.process_time()
        work()
        taken.append(1000 * (time.process_time() - began))
    return sorted(taken)
