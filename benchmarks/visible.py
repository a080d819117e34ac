"""From a step written to the step on the page: the real exporter, beside ``tail`` that polls as often.

The page is asked for again and again, on a new connection each time, until it shows the step; the time
is that at which the answer had arrived. What asking costs is therefore in it.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from queue import Queue
from threading import Thread

from benchmarks import logs
from benchmarks.run_exporter import RunExporter

TRIES = 100
RUNS = 20
STEPS = 50
POLL_SECONDS = 0.5
"""How often the exporter looks at its logs."""


def run() -> Iterator[str]:
    yield "| reader | runs | steps written | p50, s | p95, s | max, s |"
    yield "|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = _measure(Path(folder))
    yield _row("exporter, until the step is on the page", ours)
    yield _row(f"`tail -f`, polling every {POLL_SECONDS} s, until it prints the line", theirs)


def _row(words: str, taken: list[float]) -> str:
    taken.sort()
    p50, p95 = (taken[int(len(taken) * share)] for share in (0.5, 0.95))
    return f"| {words} | {RUNS} | {len(taken)} | {p50:.2f} | {p95:.2f} | {taken[-1]:.2f} |"


def _measure(folder: Path) -> tuple[list[float], list[float]]:
    """Seconds of each try, of the exporter and of ``tail``; the steps come at random moments."""
    sources = [logs.lines("verl_jsonl", number) for number in range(RUNS)]
    for number, source in enumerate(sources):
        _path(folder, number).write_bytes(b"".join(islice(source, STEPS)))
    ours, theirs, dice = [], [], random.Random(3)
    with RunExporter(folder) as exporter, _tail(_path(folder, 0)) as printed:
        exporter.wait_for(b'stepwatch_runs{state="running"} %d' % RUNS)
        for step in range(STEPS + 1, STEPS + 1 + TRIES):
            time.sleep(dice.uniform(0.2, 0.2 + POLL_SECONDS))
            with _path(folder, 0).open("ab") as file:
                file.write(next(sources[0]))
            written = time.perf_counter()
            exporter.wait_for(b'rl_step{run="run-0"} %d.0\n' % step)
            ours.append(time.perf_counter() - written)
            theirs.append(printed.get(timeout=10) - written)
    return ours, theirs


def _path(folder: Path, number: int) -> Path:
    return folder / f"run-{number}.jsonl"


@contextmanager
def _tail(path: Path) -> Iterator[Queue[float]]:
    """The moments at which ``tail`` printed a line that was appended."""
    words = ["tail", "---disable-inotify", f"--sleep-interval={POLL_SECONDS}", "--lines=0", "--follow"]
    printed: Queue[float] = Queue()
    with subprocess.Popen([*words, path], stdout=subprocess.PIPE) as process:
        Thread(target=_note, args=(process, printed), daemon=True).start()
        try:
            yield printed
        finally:
            process.kill()


def _note(process: subprocess.Popen[bytes], printed: Queue[float]) -> None:
    assert process.stdout is not None
    for _ in process.stdout:
        printed.put(time.perf_counter())
