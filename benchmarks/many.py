"""Memory of the run exporter beside more files and more runs than it follows."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from benchmarks import logs, processes
from benchmarks.run_exporter import RunExporter
from exporter.runs.limit import MOST_RUNS

FILES, STEPS, ROUNDS = (20_000, 200_000), 300, 3
RUNS = (100, 600)
DAY = 24 * 3600.0
ROUND_SECONDS = 6.0


def run() -> Iterator[str]:
    yield "| files | live runs | watched | all watched after, s | RSS, MB | at most, MB | of a core |"
    yield "|---|---|---|---|---|---|---|"
    for files in FILES:
        for runs in RUNS:
            with tempfile.TemporaryDirectory() as folder:
                yield _measure(Path(folder), files, runs)


def _measure(folder: Path, files: int, runs: int) -> str:
    _texts(folder, files)
    paths = [folder / f"run-{number}.jsonl" for number in range(runs)]
    for number, path in enumerate(paths):
        path.write_bytes(b"".join(islice(logs.lines("verl_jsonl", number), STEPS)))
    watched, began = min(runs, MOST_RUNS), time.perf_counter()
    with RunExporter(folder) as exporter:
        exporter.wait_for(b'stepwatch_runs{state="running"} %d' % watched)
        taken = time.perf_counter() - began
        for step in range(STEPS, STEPS + ROUNDS):
            time.sleep(ROUND_SECONDS)
            for number, path in enumerate(paths):
                with path.open("ab") as file:
                    file.write(b"".join(islice(logs.lines("verl_jsonl", number), step, step + 1)))
        exporter.page()
        used, began = processes.core_seconds(exporter.pid), time.perf_counter()
        time.sleep(20)
        share = (processes.core_seconds(exporter.pid) - used) / (time.perf_counter() - began)
        memory = processes.resident(exporter.pid), processes.most_resident(exporter.pid)
    return (
        f"| {files:,} | {runs} | {watched} | {taken:.0f} | {memory[0]:.0f} | {memory[1]:.0f} "
        f"| {100 * share:.1f} % |"
    )


def _texts(folder: Path, files: int) -> None:
    """Files that no trainer's step is in, half of them of last month."""
    for number in range(files):
        path = folder / f"project-{number % 20}" / f"text-{number}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"epoch done, all fine\n")
        if number % 2:
            os.utime(path, (time.time() - 30 * DAY,) * 2)
