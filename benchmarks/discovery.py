"""The list of rollout servers that Prometheus asks for: time to answer, while servers come and go."""

from __future__ import annotations

import json
import resource
import selectors
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread

import yaml
from typing_extensions import Self

from benchmarks import processes
from benchmarks.run_exporter import RunExporter

SERVERS = 2000
REQUESTS = 1500
PAUSE_SECONDS = 0.02
CHANGE_EVERY = 50
"""Requests; the exporter looks each few seconds, so that it passes some changes over."""

PATH = "/sd/rollout"


def run() -> Iterator[str]:
    yield "| servers | answer, kB | all listed after, s | p50, ms | p99, ms | max, ms | of a core | RSS, MB |"
    yield "|---|---|---|---|---|---|---|---|"
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    with tempfile.TemporaryDirectory() as folder, Servers() as servers:
        yield _measure(Path(folder), servers.addresses)


class Servers:
    """Listen while the ``with`` block runs, and take what calls; there are more of them than are listed."""

    def __init__(self) -> None:
        self._stack, self._stop = ExitStack(), Event()
        made = (socket.create_server(("127.0.0.1", 0)) for _ in range(SERVERS + REQUESTS // CHANGE_EVERY))
        self._sockets = [self._stack.enter_context(each) for each in made]
        self.addresses = ["{}:{}".format(*each.getsockname()) for each in self._sockets]
        self._thread = Thread(target=self._take)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._stack.close()

    def _take(self) -> None:
        with selectors.DefaultSelector() as selector:
            for each in self._sockets:
                selector.register(each, selectors.EVENT_READ, each)
            while not self._stop.is_set():
                for key, _ in selector.select(0.2):
                    key.data.accept()[0].close()


def _measure(folder: Path, addresses: list[str]) -> str:
    file = folder / "prometheus.yml"
    _rewrite(file, addresses[:SERVERS])
    (folder / "runs").mkdir()
    started = time.perf_counter()
    with RunExporter(folder / "runs", f"--discovery-files={json.dumps([str(file)])}") as exporter:
        while _listed(exporter) < SERVERS:
            time.sleep(0.01)
        taken = time.perf_counter() - started
        used, began = processes.core_seconds(exporter.pid), time.perf_counter()
        times = sorted(_requests(exporter, file, addresses))
        share = (processes.core_seconds(exporter.pid) - used) / (time.perf_counter() - began)
        size, resident = len(exporter.page(PATH)), processes.resident(exporter.pid)
    p50, p99, worst = (1e3 * times[int((len(times) - 1) * part)] for part in (0.5, 0.99, 1))
    return (
        f"| {SERVERS} | {size / 1e3:.0f} | {taken:.1f} | {p50:.2f} | {p99:.2f} | {worst:.2f} "
        f"| {share:.1%} | {resident:.0f} |"
    )


def _rewrite(file: Path, addresses: list[str]) -> None:
    """As verl does: the whole file, in place."""
    jobs = [{"job_name": "rollout", "static_configs": [{"targets": addresses}]}]
    file.write_text(yaml.safe_dump({"global": {"scrape_interval": "10s"}, "scrape_configs": jobs}))


def _listed(exporter: RunExporter) -> int:
    try:
        return sum(len(group["targets"]) for group in json.loads(exporter.page(PATH)))
    except ValueError:  # it has not read everything yet, and says so
        return 0


def _requests(exporter: RunExporter, file: Path, addresses: list[str]) -> Iterator[float]:
    """Seconds for each, while one server after the other gives way to a new one."""
    for number in range(REQUESTS):
        first, since = divmod(number, CHANGE_EVERY)
        if not since:
            _rewrite(file, addresses[first : first + SERVERS])
        time.sleep(PAUSE_SECONDS)
        started = time.perf_counter()
        exporter.page(PATH)
        yield time.perf_counter() - started
