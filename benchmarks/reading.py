"""How fast logs are read, and how soon a new step is seen."""

from __future__ import annotations

import ast
import csv
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, NamedTuple

import orjson
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.summary import Writer
from tensorboardX import SummaryWriter

from benchmarks import logs
from benchmarks.measure import RunExporter, quantiles, seconds, table
from exporter.runs.cli import Settings
from exporter.runs.collector import Collector
from exporter.runs.formats.tensorboard import TensorBoard
from exporter.runs.readers import frames

COLD_TRIES = 5
EVENT_STEPS, EVENT_TRIES = 2300, 3
SCALARS = EVENT_STEPS * 91
LOOKS, LIVE = 500, 100
VISIBLE_TRIES, VISIBLE_RUNS, VISIBLE_STEPS = 100, 20, 50
POLL_SECONDS = 0.5
"""How often the exporter looks at its logs."""


def parse_lines(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)


def count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def evaluate_dicts(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            if line.startswith(b"{"):
                ast.literal_eval(line.decode())


def read_rows(path: Path) -> int:
    with path.open(newline="") as file:
        return sum(1 for _ in csv.reader(file))


class Case(NamedTuple):
    """A form of log, how many MB of it, and a bare loop that does the least to it."""

    form: str
    size: int
    naive: Callable[[Path], object]
    words: str


CASES = (
    Case("verl_jsonl", 200, parse_lines, "`orjson.loads` per line"),
    Case("verl_console", 200, count_lines, "line loop"),
    Case("trl_console", 20, evaluate_dicts, "`ast.literal_eval` per dict"),
    Case("csv", 50, read_rows, "`csv.reader`"),
    Case("flat_jsonl", 50, parse_lines, "`orjson.loads` per line"),
)


@table("log", "size, MB", "steps", "exporter, MB/s", "naive loop", "naive, MB/s", "exporter takes")
def cold_start() -> Iterator[tuple[object, ...]]:
    """A long log is there when the exporter starts: how fast it is read, beside a bare loop over it."""
    for form, size, naive, words in CASES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "run.log")
            steps = logs.write(path, form, size * 1_000_000)
            ours = min(seconds(_read_whole, path) for _ in range(COLD_TRIES))
            theirs = min(seconds(naive, path) for _ in range(COLD_TRIES))
        ratio = f"{ours / theirs:.1f} times as long"
        yield form, size, steps, f"{size / ours:.0f}", words, f"{size / theirs:.0f}", ratio


def _read_whole(path: Path) -> None:
    watch = Collector(Settings(path=(str(path),)))
    while watch.look():
        pass
    assert watch.health.runs["running"] == 1
    assert watch.health.bytes_read >= path.stat().st_size


@table("written by", "scalars", "file, MB", "exporter, µs each", "TensorBoard, µs each", "times as fast")
def event_files() -> Iterator[tuple[object, ...]]:
    """TensorBoard's event files: reading them whole, beside TensorBoard's own loader without TensorFlow."""
    for name, writer in (("tensorboardX (floats)", SummaryWriter), ("tensorboard (tensors)", Writer)):
        with tempfile.TemporaryDirectory() as folder:
            path = _write_events(writer(folder), Path(folder))
            assert _read_events(path) == _load_events(path) == SCALARS
            ours = min(seconds(_read_events, path) for _ in range(EVENT_TRIES))
            theirs = min(seconds(_load_events, path) for _ in range(EVENT_TRIES))
            size = path.stat().st_size / 1e6
        costs = [f"{1e6 * taken / SCALARS:.1f}" for taken in (ours, theirs)]
        yield name, SCALARS, f"{size:.0f}", *costs, f"{theirs / ours:.1f}"


def _write_events(writer: Any, folder: Path) -> Path:
    dice = random.Random(1)
    for step in range(EVENT_STEPS):
        for key, value in logs.values(step, dice).items():
            writer.add_scalar(key, value, step)
    writer.close()
    (path,) = folder.iterdir()
    return path


def _read_events(path: Path) -> int:
    """In blocks, as the exporter does."""
    source, found, offset = TensorBoard(), 0, 0
    with path.open("rb") as file:
        while data := os.pread(file.fileno(), frames.LIMIT, offset):
            block = frames.split(data)
            offset += block.used
            found += sum(len(record.values) for payload in block.lines for record in source.parse(payload))
    return found + sum(len(record.values) for record in source.flush())


def _load_events(path: Path) -> int:
    return sum(len(event.summary.value) for event in EventFileLoader(str(path)).Load())


@table("live runs", "look: least, ms", "p50, ms", "`os.stat` of each log: least, ms", "a look takes")
def look() -> Iterator[tuple[object, ...]]:
    """A look at live runs in which nothing is new, beside a bare loop that looks at the same files."""
    with tempfile.TemporaryDirectory() as folder:
        runs = logs.runs(Path(folder), LIVE)
        watch = Collector(Settings(path=(folder,)))
        while watch.look() or not watch.caught_up:
            pass
        for run in runs:
            run.step()
        while watch.look():
            pass
        least, median = quantiles(_processor_ms(watch.look), 0, 0.5)
        bare = min(_processor_ms(lambda: [os.stat(run.path) for run in runs]))  # noqa: PTH116  (as bare as can be)
    yield LIVE, f"{least:.2f}", f"{median:.2f}", f"{bare:.2f}", f"{least / bare:.1f} times as long"


def _processor_ms(work: Callable[[], object]) -> list[float]:
    """Processor time of all threads for each call."""
    taken = []
    for _ in range(LOOKS):
        time.sleep(0.02)
        began = time.process_time()
        work()
        taken.append(1000 * (time.process_time() - began))
    return taken


@table("reader", "runs", "steps written", "p50, s", "p95, s", "max, s")
def visible() -> Iterator[tuple[object, ...]]:
    """From a step written to the step on the page: the real exporter, beside ``tail`` that polls as often.

    The page is requested again and again, on a new connection each time, until it shows the step; the time
    is that at which the answer had arrived. The cost of the requests is therefore in it.
    """
    ours, theirs, dice = [], [], random.Random(3)
    with tempfile.TemporaryDirectory() as name:
        runs = logs.runs(Path(name), VISIBLE_RUNS, VISIBLE_STEPS)
        with RunExporter(Path(name)) as exporter, _tail(runs[0].path) as printed:
            exporter.wait_for_runs(VISIBLE_RUNS)
            for step in range(VISIBLE_STEPS + 1, VISIBLE_STEPS + 1 + VISIBLE_TRIES):
                time.sleep(dice.uniform(0.2, 0.2 + POLL_SECONDS))
                runs[0].step()
                written = time.perf_counter()
                exporter.wait_for(b'rl_step{run="run-0"} %d.0\n' % step)
                ours.append(time.perf_counter() - written)
                theirs.append(printed.get(timeout=10) - written)
    peer = f"`tail -f`, polling every {POLL_SECONDS} s, until it prints the line"
    for words, taken in (("exporter, until the step is on the page", ours), (peer, theirs)):
        figures = [f"{each:.2f}" for each in quantiles(taken, 0.5, 0.95, 1)]
        yield words, VISIBLE_RUNS, len(taken), *figures


@contextmanager
def _tail(path: Path) -> Iterator[Queue[float]]:
    """The moments at which ``tail`` printed a line that was appended."""
    words = ["tail", "---disable-inotify", f"--sleep-interval={POLL_SECONDS}", "--lines=0", "--follow"]
    printed: Queue[float] = Queue()
    with subprocess.Popen([*words, path], stdout=subprocess.PIPE) as process:

        def note() -> None:
            assert process.stdout is not None
            for _ in process.stdout:
                printed.put(time.perf_counter())

        Thread(target=note, daemon=True).start()
        try:
            yield printed
        finally:
            process.kill()
