"""A log of 200 MB is there when the exporter starts: how fast is it read, beside a bare loop over it?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from benchmarks import logs
from exporter.runs.watch import Settings, Watch

MEGABYTE = 1_000_000
SIZE = 200 * MEGABYTE
TRIES = 3


def run() -> Iterator[str]:
    yield "| log | steps | exporter, MB/s | naive loop | naive, MB/s | exporter takes |"
    yield "|---|---|---|---|---|---|"
    for form, naive, words in (
        ("jsonl", _parse_lines, "`orjson.loads` per line"),
        ("log", _count_lines, "line loop"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"run.{form}")
            steps = logs.write(path, SIZE)
            ours = min(_seconds(_read_all, path) for _ in range(TRIES))
            theirs = min(_seconds(naive, path) for _ in range(TRIES))
        rates = [f"{SIZE / MEGABYTE / seconds:.0f}" for seconds in (ours, theirs)]
        yield f"| {form} | {steps} | {rates[0]} | {words} | {rates[1]} | {ours / theirs:.1f} times as long |"


def _seconds(action: Callable[[Path], object], path: Path) -> float:
    started = time.perf_counter()
    action(path)
    return time.perf_counter() - started


def _read_all(path: Path) -> None:
    watch = Watch(Settings(paths=(str(path),)))
    while watch.look():
        pass
    assert watch.health.runs["running"] == 1
    assert watch.health.bytes_read >= SIZE


def _parse_lines(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)
