"""Memory of the run exporter beside more files and more runs than it follows.

Beside it runs a bare loop in Python that walks the same folder every 5 s, keeps the status of each file,
and does nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from benchmarks import logs, processes
from benchmarks.run_exporter import RunExporter
from exporter.runs.model.run_limit import MOST_RUNS

FILES, STEPS, ROUNDS = (20_000, 200_000), 300, 3
RUNS = (100, 600)
DAY = 24 * 3600.0
ROUND_SECONDS = 6.0
MEASURED_SECONDS = 60.0

BARE = """
import os, sys, time
while True:
    known = {}
    for at, _, names in os.walk(sys.argv[1]):
        for name in names:
            path = os.path.join(at, name)
            known[path] = os.stat(path)
    print(len(known), flush=True)
    time.sleep(5)
"""


def run() -> Iterator[str]:
    yield (
        "| files | live runs | watched | all watched after, s | RSS, MB | at most, MB | bare loop, MB "
        "| of a core | bare loop, of a core |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
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
        with subprocess.Popen([sys.executable, "-c", BARE, str(folder)], stdout=subprocess.PIPE) as bare:
            try:
                if bare.stdout is None or int(bare.stdout.readline()) != files + runs:
                    raise RuntimeError("the bare loop did not find all files")
                both = exporter.pid, bare.pid
                share, loop = processes.shares(both, lambda: time.sleep(MEASURED_SECONDS))
                memory, bare_memory = map(processes.resident, both)
            finally:
                bare.kill()
        most = processes.most_resident(exporter.pid)
    return (
        f"| {files:,} | {runs} | {watched} | {taken:.0f} | {memory:.0f} | {most:.0f} | {bare_memory:.0f} "
        f"| {100 * share:.1f} % | {100 * loop:.1f} % |"
    )


def _texts(folder: Path, files: int) -> None:
    """Files that no trainer's step is in, half of them of last month."""
    for number in range(files):
        path = folder / f"project-{number % 20}" / f"text-{number}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"epoch done, all fine\n")
        if number % 2:
            os.utime(path, (time.time() - 30 * DAY,) * 2)
