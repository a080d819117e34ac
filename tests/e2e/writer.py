"""A replacement for a trainer: write a real log again, step by step, holding it open as trainers do.

Each target gets gradient norms of its own: logs with the same numbers would be taken for one run.

``python -m tests.e2e.writer SOURCE TARGET [--jsonl] [--rate 5] [--steps N] [--stay]``
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from zlib import crc32

import orjson

from exporter.runs.formats.line_consoles import VerlConsole
from exporter.runs.signals.record import Record, number

ROOT = Path(__file__).parents[2]


GRAD_NORM = re.compile(rb"(?<=actor/grad_norm:)((?:np\.float64\()?)(-?[\d.]+(?:e-?\d+)?)")


def distinguished(target: Path, line: bytes) -> bytes:
    """The line with a gradient norm that is this target's."""
    more = crc32(bytes(target.name, "utf-8")) % 100 / 200
    return GRAD_NORM.sub(lambda found: found[1] + b"%.6f" % (float(found[2]) + more), line)


def as_jsonl(record: Record) -> bytes:
    """The record as verl's ``file`` logger writes it: NaN and Inf become null."""
    values = {key: number(value) for key, value in record.values.items()}
    return orjson.dumps({"step": record.step, "data": values}) + b"\n"


def lines(source: Path, target: Path, *, jsonl: bool) -> Iterator[tuple[bytes, bool]]:
    """The lines to write, and whether each is a step."""
    console = VerlConsole()
    for logged in source.read_bytes().splitlines(keepends=True):
        line = distinguished(target, logged)
        record = next(
            (event for event in console.parse(line.rstrip(b"\n")) if isinstance(event, Record)), None
        )
        if not jsonl:
            yield line, record is not None
        elif record is not None:
            yield as_jsonl(record), True


def write(source: Path, target: Path, *, jsonl: bool, rate: float, steps: int | None, stay: bool) -> None:
    """Write the log at ``rate`` steps a second, up to ``steps`` of them; ``stay`` until killed."""
    done = 0
    with target.open("wb", buffering=0) as file:
        for line, is_step in lines(source, target, jsonl=jsonl):
            if is_step and done == steps:
                break
            file.write(line)
            if is_step:
                done += 1
                time.sleep(1 / rate)
        while stay:
            time.sleep(1)


@contextmanager
def writing(source: Path, target: Path, *options: str) -> Iterator[Popen[bytes]]:
    """A writer in a process of its own, killed at the end of the block."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.e2e.writer", str(source), str(target), *options]
    with Popen(command, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--jsonl", action="store_true")
    parser.add_argument("--rate", type=float, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--stay", action="store_true")
    write(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
