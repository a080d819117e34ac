"""A long log is there when the exporter starts: how fast is it read, beside a bare loop over it?"""

from __future__ import annotations

import ast
import csv
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks import logs
from exporter.runs.collector import Collector, Settings

MEGABYTE = 1_000_000
TRIES = 5


class Case(NamedTuple):
    """A form of log, how many MB of it, and a bare loop that does the least to it."""

    form: str
    size: int
    naive: Callable[[Path], object]
    words: str


def run() -> Iterator[str]:
    yield "| log | size, MB | steps | exporter, MB/s | naive loop | naive, MB/s | exporter takes |"
    yield "|---|---|---|---|---|---|---|"
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            yield _measure(case, Path(folder, "run.log"))


def _measure(case: Case, path: Path) -> str:
    steps = logs.write(path, case.form, case.size * MEGABYTE)
    ours = min(_seconds(_read_all, path) for _ in range(TRIES))
    theirs = min(_seconds(case.naive, path) for _ in range(TRIES))
    rates = [f"{case.size / seconds:.0f}" for seconds in (ours, theirs)]
    return (
        f"| {case.form} | {case.size} | {steps} | {rates[0]} | {case.words} | {rates[1]} "
        f"| {ours / theirs:.1f} times as long |"
    )


def _seconds(action: Callable[[Path], object], path: Path) -> float:
    started = time.perf_counter()
    action(path)
    return time.perf_counter() - started


def _read_all(path: Path) -> None:
    watch = Collector(Settings(paths=(str(path),)))
    while watch.look():
        pass
    assert watch.health.runs["running"] == 1
    assert watch.health.bytes_read >= path.stat().st_size


def _parse_lines(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _evaluate_dicts(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            if line.startswith(b"{"):
                ast.literal_eval(line.decode())


def _read_rows(path: Path) -> int:
    with path.open(newline="") as file:
        return sum(1 for _ in csv.reader(file))


CASES = (
    Case("verl_jsonl", 200, _parse_lines, "`orjson.loads` per line"),
    Case("verl_console", 200, _count_lines, "line loop"),
    Case("trl_console", 20, _evaluate_dicts, "`ast.literal_eval` per dict"),
    Case("csv", 50, _read_rows, "`csv.reader`"),
    Case("flat_jsonl", 50, _parse_lines, "`orjson.loads` per line"),
)
