"""TensorBoard's event files: reading them whole, beside TensorBoard's own loader without TensorFlow."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.summary import Writer
from tensorboardX import SummaryWriter

from benchmarks import logs
from exporter.runs.readers import frames
from exporter.runs.sources.tensorboard import TensorBoard

STEPS = 2300
SCALARS = STEPS * 91
TRIES = 3


def run() -> Iterator[str]:
    yield "| written by | scalars | file, MB | exporter, µs each | TensorBoard, µs each | times as fast |"
    yield "|---|---|---|---|---|---|"
    for name, writer in (("tensorboardX (floats)", SummaryWriter), ("tensorboard (tensors)", Writer)):
        with tempfile.TemporaryDirectory() as folder:
            path = _write(writer(folder), Path(folder))
            ours = min(_seconds(_read, path) for _ in range(TRIES))
            theirs = min(_seconds(_load, path) for _ in range(TRIES))
            size = path.stat().st_size / 1e6
        costs = f"{1e6 * ours / SCALARS:.1f} | {1e6 * theirs / SCALARS:.1f}"
        yield f"| {name} | {SCALARS} | {size:.0f} | {costs} | {theirs / ours:.1f} |"


def _write(writer: Any, folder: Path) -> Path:
    dice = random.Random(1)
    for step in range(STEPS):
        for key, value in logs.values(step, dice).items():
            writer.add_scalar(key, value, step)
    writer.close()
    (path,) = folder.iterdir()
    return path


def _seconds(action: Callable[[Path], int], path: Path) -> float:
    started = time.perf_counter()
    found = action(path)
    taken = time.perf_counter() - started
    assert found == SCALARS
    return taken


def _read(path: Path) -> int:
    """In blocks, as the exporter does."""
    source, found, offset = TensorBoard(), 0, 0
    with path.open("rb") as file:
        while data := os.pread(file.fileno(), frames.LIMIT, offset):
            block = frames.split(data)
            offset += block.used
            found += sum(len(record.values) for payload in block.lines for record in source.parse(payload))
    return found + sum(len(record.values) for record in source.flush())


def _load(path: Path) -> int:
    return sum(len(event.summary.value) for event in EventFileLoader(str(path)).Load())
