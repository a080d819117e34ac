"""How soon the run exporter answers: its metrics, the list of rollout servers, the page of a run."""

from __future__ import annotations

import json
import resource
import selectors
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from threading import Event, Thread

import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import logs
from benchmarks.measure import RunExporter, get, memory, quantiles, samples, seconds, shares, table
from tests.real import Server, environments, free_port

SCRAPES = 300
SERVERS, REQUESTS, CHANGE_EVERY = 2000, 1500, 50
"""Rollout servers, requests, and requests between two changes, some of which the exporter does not see."""

PATH = "/sd/rollout"
RUNS, STEPS, CHANGES = 20, 10_000, 30
SEEN_SECONDS = 1.0
"""After that the exporter has looked at the log again."""


@table("live runs", "series", "page, kB", "p50, ms", "p99, ms", "RSS, MB", "prometheus_client, ms")
def metrics_page() -> Iterator[tuple[object, ...]]:
    """The page of 20 and of 100 live runs that log a step now and then; beside prometheus_client."""
    for number in (20, 100):
        times = []
        with tempfile.TemporaryDirectory() as folder:
            runs = logs.runs(Path(folder), number)
            with RunExporter(Path(folder)) as exporter:
                exporter.wait_for_runs(number)
                for scrape in range(SCRAPES):
                    runs[scrape % number].step()
                    time.sleep(0.03)
                    times.append(1e3 * seconds(exporter.page))
                page, resident = exporter.page(), memory(exporter.pid)
        registry = CollectorRegistry()
        registry.register(_Families(list(text_string_to_metric_families(page.decode()))))
        peer = 1e3 * seconds(generate_latest, registry)
        p50, p99 = quantiles(times, 0.5, 0.99)
        figures = f"{len(page) / 1e3:.0f}", f"{p50:.1f}", f"{p99:.1f}", f"{resident:.0f}", f"{peer:.0f}"
        yield number, samples(page), *figures


@table("stuck clients", "how", "p50, ms", "p99, ms", "RSS, MB")
def stuck_clients() -> Iterator[tuple[object, ...]]:
    """The page of 100 runs while other clients send half a request, a byte now and then, or never read."""
    half, asked = b"GET /metrics HTTP/1.1\r\nHo", b"GET /metrics HTTP/1.1\r\n\r\n"
    ways = {"half a request": half, "a byte now and then": half, "200 requests, nothing read": 200 * asked}
    cases = [(0, ""), *((number, way) for number in (64, 300) for way in ways)]
    with tempfile.TemporaryDirectory() as folder:
        logs.runs(Path(folder), 100)
        for number, way in cases:
            with RunExporter(Path(folder)) as exporter, ExitStack() as stuck:
                exporter.wait_for_runs(100)
                clients = []
                for _ in range(number):
                    clients.append(stuck.enter_context(socket.socket()))
                    clients[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    clients[-1].connect(("127.0.0.1", int(exporter.address.rpartition(":")[2])))
                    with suppress(OSError):
                        clients[-1].sendall(ways[way])
                times = []
                for scrape in range(SCRAPES):
                    if way == "a byte now and then" and scrape % 10 == 0:
                        for client in clients:
                            with suppress(OSError):  # it was dropped
                                client.sendall(b"x")
                    times.append(1e3 * seconds(exporter.page))
                p50, p99 = quantiles(times, 0.5, 0.99)
                yield number, way, f"{p50:.1f}", f"{p99:.1f}", f"{memory(exporter.pid, 'VmHWM'):.0f}"


class _Families:
    """A collector that hands out what was parsed from our page."""

    def __init__(self, families: list[Metric]) -> None:
        self.families = families

    def collect(self) -> list[Metric]:
        return self.families


@table(
    "servers", "answer, kB", "all listed after, s", "p50, ms", "p99, ms", "max, ms", "of a core", "RSS, MB"
)
def discovery() -> Iterator[tuple[object, ...]]:
    """The list of rollout servers that Prometheus asks for, while servers come and go."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    times: list[float] = []
    with tempfile.TemporaryDirectory() as name, _servers(SERVERS + REQUESTS // CHANGE_EVERY) as addresses:
        folder = Path(name)
        file = folder / "prometheus.yml"
        _rewrite(file, addresses[:SERVERS])
        (folder / "runs").mkdir()
        began = time.perf_counter()
        with RunExporter(folder / "runs", f"--discovery-files={json.dumps([str(file)])}") as exporter:
            while _listed(exporter) < SERVERS:
                time.sleep(0.01)
            taken = time.perf_counter() - began
            [share] = shares(
                exporter.pid, meanwhile=lambda: times.extend(_requests(exporter, file, addresses))
            )
            size, resident = len(exporter.page(PATH)), memory(exporter.pid)
    figures = [f"{1e3 * each:.2f}" for each in quantiles(times, 0.5, 0.99, 1)]
    yield SERVERS, f"{size / 1e3:.0f}", f"{taken:.1f}", *figures, f"{share:.1%}", f"{resident:.0f}"


@contextmanager
def _servers(number: int) -> Iterator[list[str]]:
    """Addresses of servers that accept what connects."""
    stop = Event()
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        for each in sockets:
            selector.register(each, selectors.EVENT_READ, each)

        def accept() -> None:
            while not stop.is_set():
                for key, _ in selector.select(0.2):
                    key.data.accept()[0].close()

        thread = Thread(target=accept)
        thread.start()
        try:
            yield ["{}:{}".format(*each.getsockname()) for each in sockets]
        finally:
            stop.set()
            thread.join()


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
    """Seconds for each, while one server after the other is replaced by a new one."""
    for number in range(REQUESTS):
        first, since = divmod(number, CHANGE_EVERY)
        if not since:
            _rewrite(file, addresses[first : first + SERVERS])
        time.sleep(0.02)
        yield seconds(exporter.page, PATH)


@table(
    "page", "runs watched", "charts", "page, kB", "first, ms", "after each step: median, ms", "worst, ms",
    "unchanged: median, ms", "RSS, MB",
)  # fmt: skip
def light() -> Iterator[tuple[object, ...]]:
    """The page of a run of 10,000 steps, with 19 such runs beside it.

    Beside it a page as tutorials write it, with Flask and Plotly, on one of the same logs.
    """
    with tempfile.TemporaryDirectory() as folder:
        runs = logs.runs(Path(folder), RUNS, STEPS)
        with RunExporter(Path(folder)) as exporter:
            exporter.wait_for(b'rl_step{run="run-0"} %d' % STEPS)
            exporter.wait_for_runs(RUNS)
            before = memory(exporter.pid)
            figures = list(_page_times(lambda: exporter.page("/run/run-0"), runs[0]))
            exporter.page("/")
            yield "of a run, by the exporter", RUNS, *figures, f"{memory(exporter.pid):.0f}"
            yield "before any page was asked for", RUNS, *[""] * 6, f"{before:.0f}"
        url = f"http://127.0.0.1:{(port := free_port())}/"
        program = Path(__file__).with_name("flask_plotly.py")
        with Server(
            [environments.programs("plotly") / "python", program, runs[0].path, str(port)], url
        ) as peer:
            figures = list(_page_times(lambda: get(url), runs[0]))
            yield "of the same run, by Flask and Plotly", 1, *figures, f"{memory(peer.pid):.0f}"


def _page_times(page: Callable[[], bytes], run: logs.Log) -> Iterator[str]:
    first, content, changed = seconds(page), page(), []
    for _ in range(CHANGES):
        run.step()
        time.sleep(SEEN_SECONDS)
        changed.append(seconds(page))
    unchanged = [seconds(page) for _ in range(CHANGES)]
    yield str(max(content.count(b"<figure"), content.count(b"Plotly.newPlot(")))
    yield f"{len(content) / 1e3:.0f}"
    for taken in (first, median(changed), max(changed), median(unchanged)):
        yield f"{1e3 * taken:.1f}"
