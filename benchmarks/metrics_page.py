"""The page of 20 and of 100 live runs: size, time to answer, memory; beside prometheus_client."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import logs, processes
from benchmarks.run_exporter import RunExporter

SCRAPES = 300
STEPS = 300


def run() -> Iterator[str]:
    yield "| live runs | series | page, kB | p50, ms | p99, ms | RSS, MB | prometheus_client, ms |"
    yield "|---|---|---|---|---|---|---|"
    for runs in (20, 100):
        with tempfile.TemporaryDirectory() as folder:
            yield _measure(runs, Path(folder))


def _measure(runs: int, folder: Path) -> str:
    sources = [_log(folder / f"run-{number}.jsonl", number) for number in range(runs)]
    with RunExporter(folder) as exporter:
        exporter.wait_for(b'stepwatch_runs{state="running"} %d' % runs)
        times = sorted(_scrapes(exporter, sources))
        page = exporter.page()
        resident = processes.resident(exporter.pid)
    return _row(runs, page, times, resident)


def _row(runs: int, page: bytes, times: list[float], resident: float) -> str:
    series = sum(not line.startswith(b"#") for line in page.splitlines())
    p50, p99 = (1e3 * times[int(len(times) * share)] for share in (0.5, 0.99))
    peer = 1e3 * _client_seconds(page)
    return (
        f"| {runs} | {series} | {len(page) / 1e3:.0f} | {p50:.1f} | {p99:.1f} | {resident:.0f} | {peer:.0f} |"
    )


def _log(path: Path, seed: int) -> tuple[Path, Iterator[bytes]]:
    steps = logs.lines("verl_jsonl", seed)
    path.write_bytes(b"".join(islice(steps, STEPS)))
    return path, steps


def _scrapes(exporter: RunExporter, sources: list[tuple[Path, Iterator[bytes]]]) -> Iterator[float]:
    """Seconds for each scrape, while every run logs a step now and then."""
    for number in range(SCRAPES):
        path, steps = sources[number % len(sources)]
        with path.open("ab") as file:
            file.write(next(steps))
        time.sleep(0.03)
        started = time.perf_counter()
        exporter.page()
        yield time.perf_counter() - started


class _Families:
    """A collector that hands out what was parsed from our page."""

    def __init__(self, families: list[Metric]) -> None:
        self.families = families

    def collect(self) -> list[Metric]:
        return self.families


def _client_seconds(page: bytes) -> float:
    registry = CollectorRegistry()
    registry.register(_Families(list(text_string_to_metric_families(page.decode()))))
    started = time.perf_counter()
    generate_latest(registry)
    return time.perf_counter() - started
