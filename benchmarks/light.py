"""The page of a run of 10,000 steps, with 19 such runs beside it: time, size, memory.

Beside it a page as tutorials write it, with Flask and Plotly, on one of the same logs.
"""

from __future__ import annotations

import http.client
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median

from benchmarks import logs, processes
from benchmarks.run_exporter import RunExporter
from tests.real import Server, environments, free_port

RUNS, STEPS = 20, 10_000
CHANGES = 30
SEEN_SECONDS = 1.0
"""After that the exporter has looked at the log again."""

PEER = Path(__file__).with_name("flask_plotly.py")
HEAD = (
    "page", "runs watched", "charts", "page, kB", "first, ms", "after each step: median, ms", "worst, ms",
    "unchanged: median, ms", "RSS, MB",
)  # fmt: skip

Get = Callable[[], bytes]


def run() -> Iterator[str]:
    yield f"| {' | '.join(HEAD)} |"
    yield "|---" * len(HEAD) + "|"
    with tempfile.TemporaryDirectory() as folder:
        growing = [_log(Path(folder, f"run-{number}.jsonl"), number) for number in range(RUNS)]
        yield from _ours(Path(folder), growing[0])
        yield _peer(Path(folder, "run-0.jsonl"), growing[0])


def _log(path: Path, seed: int) -> Iterator[bytes]:
    """Write the log; return the steps to come."""
    steps = logs.lines("verl_jsonl", seed)
    with path.open("wb") as file:
        file.writelines(islice(steps, STEPS))
    return steps


def _ours(folder: Path, growing: Iterator[bytes]) -> Iterator[str]:
    with RunExporter(folder) as exporter:
        exporter.wait_for(b'rl_step{run="run-0"} %d' % STEPS)
        exporter.wait_for(b"stepwatch_runs{" + b'state="running"} %d' % RUNS)
        before = processes.resident(exporter.pid)
        times = _times(lambda: exporter.page("/run/run-0"), folder / "run-0.jsonl", growing)
        exporter.page("/")
        yield _row("of a run, by the exporter", RUNS, times, processes.resident(exporter.pid))
        yield f"| before any page was asked for | {RUNS} |  |  |  |  |  |  | {before:.0f} |"


def _peer(log: Path, growing: Iterator[bytes]) -> str:
    port = free_port()
    command = [environments.programs("plotly") / "python", PEER, log, str(port)]
    with Server(command, f"http://127.0.0.1:{port}/") as server:
        times = _times(lambda: _page(port), log, growing)
        return _row("of the same run, by Flask and Plotly", 1, times, processes.resident(server.pid))


def _times(get: Get, log: Path, growing: Iterator[bytes]) -> list[str]:
    first, page = _timed(get)
    changed = [_after_a_step(get, log, next(growing)) for _ in range(CHANGES)]
    unchanged = [_timed(get)[0] for _ in range(CHANGES)]
    charts = max(page.count(b"<figure"), page.count(b"Plotly.newPlot("))
    figures = (first, median(changed), max(changed), median(unchanged))
    return [str(charts), f"{len(page) / 1e3:.0f}", *(f"{1e3 * each:.1f}" for each in figures)]


def _timed(get: Get) -> tuple[float, bytes]:
    started = time.perf_counter()
    page = get()
    return time.perf_counter() - started, page


def _after_a_step(get: Get, log: Path, line: bytes) -> float:
    with log.open("ab") as file:
        file.write(line)
    time.sleep(SEEN_SECONDS)
    return _timed(get)[0]


def _page(port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


def _row(words: str, runs: int, times: list[str], resident: float) -> str:
    return f"| {words} | {runs} | {' | '.join(times)} | {resident:.0f} |"
