"""All runs as TensorBoard's event files, beside the library that trainers write them with."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
from tensorboardX import SummaryWriter

from benchmarks import logs
from benchmarks.measure import table
from exporter.runs.collector import Settings
from exporter.runs.model.run import Options
from stepwatch.operate.tensorboard import FOREVER, MOST_RUNS, Recorder, export

RUNS, STEPS = 100, 1000
OF_THE_LIBRARY = 1
"""Runs that the library writes: it takes the same for each."""


@table(
    "written by", "runs", "steps", "scalars each step", "s of a core", "µs a scalar", "MB", "bytes a scalar"
)
def tensorboard_out() -> Iterator[tuple[object, ...]]:
    """100 runs of 1,000 steps: read and written by us; only written by tensorboardX."""
    with tempfile.TemporaryDirectory() as folder:
        runs, to = Path(folder, "runs"), Path(folder, "tb")
        runs.mkdir()
        for run in range(RUNS):
            _write(runs / f"{run}.jsonl", run)
        took = _seconds(_export, runs, to)
        again = _seconds(_export, runs, to)
        yield ("the export, which reads the logs too", *_row(to, RUNS, took))
        yield "the export, begun again", RUNS, STEPS, "", f"{again:.1f}", "", "", ""
    with tempfile.TemporaryDirectory() as folder:
        took = _seconds(_library, Path(folder))
        yield ("tensorboardX", *_row(Path(folder), OF_THE_LIBRARY, took))


def _seconds(action: Callable[..., None], *paths: Path) -> float:
    """Of a processor, in all threads: the library writes in one of its own."""
    began = time.process_time()
    action(*paths)
    return time.process_time() - began


def _write(log: Path, seed: int) -> None:
    dice = random.Random(seed)
    with log.open("wb") as file:
        for step in range(STEPS):
            file.write(orjson.dumps({"step": step, "data": logs.values(step, dice)}) + b"\n")


def _export(runs: Path, to: Path) -> None:
    def settings(recorder: Recorder, states: Path) -> Settings:
        options = Options(recorder=recorder.note)
        return Settings((str(runs),), states, forget_after=FOREVER, options=options, most_runs=MOST_RUNS)

    export(to, settings, None, print, follow=False)


def _library(to: Path) -> None:
    for run in range(OF_THE_LIBRARY):
        dice = random.Random(run)
        with SummaryWriter(str(to / str(run))) as writer:
            for step in range(STEPS):
                for key, value in logs.values(step, dice).items():
                    writer.add_scalar(key, value, step)


def _row(to: Path, runs: int, took: float) -> tuple[object, ...]:
    size = sum(path.stat().st_size for path in to.rglob("*tfevents*"))
    each = len(logs.values(0, random.Random(0)))
    scalars = runs * STEPS * each
    return (
        runs,
        STEPS,
        each,
        f"{took:.1f}",
        f"{1e6 * took / scalars:.2f}",
        f"{size / 1e6:.0f}",
        f"{size / scalars:.0f}",
    )
