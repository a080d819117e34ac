"""What the run exporter takes of the machine, beside bare loops in Python that look at the same files."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from threading import Event, Thread

from benchmarks import logs
from benchmarks.measure import RunExporter, memory, python, shares, table
from exporter.runs.model.run_set import MOST_RUNS

OLD, LIVE = 10_000, 100
STEP_SECONDS, SCRAPE_SECONDS, SCRAPES = 10.0, 5.0, 12
MANY_FILES, MANY_RUNS = (20_000, 200_000), (100, 600)
ROUNDS, ROUND_SECONDS = 3, 6.0

LOOKING = """
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

WALKING = """
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
"""Walks the folder every 5 s and keeps the status of each file."""


def _old_runs(folder: Path) -> list[logs.Log]:
    logs.files(folder, OLD, "run-{}/metrics.jsonl", next(logs.lines("verl_jsonl")))
    return []


CASES: tuple[tuple[str, Callable[[Path], list[logs.Log]], bytes], ...] = (
    ("nothing", lambda _: [], b"stepwatch_last_poll_timestamp_seconds 1"),
    (f"{OLD:,} old runs", _old_runs, b'stepwatch_files{kind="old"} %d' % OLD),
    (
        f"{LIVE} live runs, a step of each every 10 s",
        lambda folder: logs.runs(folder, LIVE),
        b'stepwatch_runs{state="running"} %d' % LIVE,
    ),
)
"""What is in the folder, and the text of the page once all of it was seen."""


@table(
    "in the folder", "all seen after, s", "RSS, MB", "of a core", "bare loop, of a core",
    "with a scrape every 5 s, of a core",
)  # fmt: skip
def idle() -> Iterator[tuple[object, ...]]:
    """What it takes while hardly anything happens: nothing, 10,000 old runs, 100 live ones."""
    for words, fill, seen in CASES:
        with tempfile.TemporaryDirectory() as name:
            growing, began = fill(Path(name)), time.perf_counter()
            with RunExporter(Path(name)) as exporter:
                exporter.wait_for(seen)
                taken = time.perf_counter() - began
                with training(growing), python(LOOKING, name) as bare:
                    time.sleep(STEP_SECONDS)
                    used = shares(exporter.pid, bare.pid)
                    used += shares(exporter.pid, meanwhile=lambda exporter=exporter: _scrape(exporter))
                    resident = memory(exporter.pid)
        yield words, f"{taken:.1f}", f"{resident:.0f}", *(f"{100 * share:.2f} %" for share in used)


@contextmanager
def training(runs: Sequence[logs.Log]) -> Iterator[None]:
    """Write a step to every log every 10 s, one after the other; they stay open, as verl's do."""
    done = Event()

    def write() -> None:
        with ExitStack() as stack:
            files = [stack.enter_context(run.path.open("ab", buffering=0)) for run in runs]
            for file, run in cycle(zip(files, runs, strict=True)):
                file.write(next(run.lines))
                if done.wait(STEP_SECONDS / len(runs)):
                    return

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _scrape(exporter: RunExporter) -> None:
    for _ in range(SCRAPES):
        exporter.page()
        time.sleep(SCRAPE_SECONDS)


@table(
    "files", "live runs", "watched", "all watched after, s", "RSS, MB", "at most, MB", "bare loop, MB",
    "of a core", "bare loop, of a core",
)  # fmt: skip
def many() -> Iterator[tuple[object, ...]]:
    """Its memory beside more files and more runs than it follows."""
    for files in MANY_FILES:
        for number in MANY_RUNS:
            with tempfile.TemporaryDirectory() as folder:
                yield f"{files:,}", number, *_crowd(Path(folder), files, number)


def _crowd(folder: Path, files: int, number: int) -> Iterator[object]:
    logs.files(folder, files, "text-{}.log", b"epoch done, all fine\n", old=0.5)
    runs = logs.runs(folder, number)
    yield (watched := min(number, MOST_RUNS))
    began = time.perf_counter()
    with RunExporter(folder) as exporter:
        exporter.wait_for_runs(watched)
        yield f"{time.perf_counter() - began:.0f}"
        for _ in range(ROUNDS):
            time.sleep(ROUND_SECONDS)
            for run in runs:
                run.step()
        exporter.page()
        with python(WALKING, str(folder)) as bare:
            assert bare.stdout is not None
            if int(bare.stdout.readline()) != files + number:
                raise RuntimeError("the bare loop did not find all files")
            used = shares(exporter.pid, bare.pid)
            for size in (memory(exporter.pid), memory(exporter.pid, "VmHWM"), memory(bare.pid)):
                yield f"{size:.0f}"
    yield from (f"{100 * share:.1f} %" for share in used)
