"""What the run exporter takes while hardly anything happens: nothing, 10,000 old runs, 100 live ones.

Beside it runs a bare loop in Python that looks at the same files as often, and does nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import FileIO
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from benchmarks import logs, processes
from benchmarks.run_exporter import RunExporter

OLD, LIVE = 10_000, 100
STEPS = 300
DAY = 24 * 3600
STEP_SECONDS = 10.0
SCRAPE_SECONDS = 5.0
MEASURED_SECONDS = 60.0

BARE = """
import os, sys, time
walked, files = 0.0, []
while True:
    if time.monotonic() > walked + 5:
        walked = time.monotonic()
        files = [os.path.join(at, name) for at, _, names in os.walk(sys.argv[1]) for name in names]
        changed = [os.stat(file).st_mtime for file in files]
        live = [file for file, at in zip(files, changed) if at > time.time() - 3600]
    for file in live:
        os.stat(file)
    time.sleep(0.5)
"""
"""Walks the folder every 5 s and looks twice a second at each file that is not old."""


class Case(NamedTuple):
    """What lies in the folder, and the text of the page by which it was all seen."""

    words: str
    fill: Callable[[Path], list[Path]]
    seen: bytes


def run() -> Iterator[str]:
    yield (
        "| in the folder | all seen after, s | RSS, MB | of a core | bare loop, of a core "
        "| with a scrape every 5 s, of a core |"
    )
    yield "|---|---|---|---|---|---|"
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            yield _measure(case, Path(folder))


def _measure(case: Case, folder: Path) -> str:
    growing = case.fill(folder)
    started = time.perf_counter()
    with RunExporter(folder) as exporter:
        exporter.wait_for(case.seen)
        taken = time.perf_counter() - started
        with Trainers(growing), _bare_loop(folder) as bare:
            time.sleep(STEP_SECONDS)
            idle, loop = processes.shares([exporter.pid, bare.pid], lambda: time.sleep(MEASURED_SECONDS))
            [scraped] = processes.shares([exporter.pid], lambda: _scrape(exporter))
            resident = processes.resident(exporter.pid)
    shares = " | ".join(f"{100 * share:.2f} %" for share in (idle, loop, scraped))
    return f"| {case.words} | {taken:.1f} | {resident:.0f} | {shares} |"


def _empty(_folder: Path) -> list[Path]:
    return []


def _old(folder: Path) -> list[Path]:
    """Runs of last month, each in a folder of its own."""
    step = next(logs.lines("verl_jsonl"))
    for number in range(OLD):
        path = folder / f"project-{number % 20}" / f"run-{number}" / "metrics.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(step)
        os.utime(path, (time.time() - 30 * DAY,) * 2)
    return []


def live(folder: Path) -> list[Path]:
    """Logs of runs that are about to go on."""
    paths = [folder / f"run-{number}.jsonl" for number in range(LIVE)]
    for number, path in enumerate(paths):
        path.write_bytes(b"".join(islice(logs.lines("verl_jsonl", number), STEPS)))
    return paths


CASES = (
    Case("nothing", _empty, b"stepwatch_last_poll_timestamp_seconds 1"),
    Case(f"{OLD:,} old runs", _old, b'stepwatch_files{kind="old"} %d' % OLD),
    Case(f"{LIVE} live runs, a step of each every 10 s", live, b'stepwatch_runs{state="running"} %d' % LIVE),
)


class Trainers:
    """Write a step to every log every 10 s, one after the other; they keep their logs open, as verl does."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._done = Event()
        self._thread = Thread(target=self._write)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _write(self) -> None:
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("ab", buffering=0)) for path in self._paths]
            steps = [islice(logs.lines("verl_jsonl", number), STEPS, None) for number in range(len(files))]
            while files and not self._done.is_set():
                self._round(files, steps)

    def _round(self, files: Sequence[FileIO], steps: Sequence[Iterator[bytes]]) -> None:
        for file, lines in zip(files, steps, strict=True):
            file.write(next(lines))
            if self._done.wait(STEP_SECONDS / len(files)):
                return


@contextmanager
def _bare_loop(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BARE, str(folder)]) as process:
        try:
            yield process
        finally:
            process.kill()


def _scrape(exporter: RunExporter) -> None:
    for _ in range(round(MEASURED_SECONDS / SCRAPE_SECONDS)):
        exporter.page()
        time.sleep(SCRAPE_SECONDS)
