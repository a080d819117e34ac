"""What the door costs: requests through it, beside the same requests to the ports behind it."""

from __future__ import annotations

import http.client
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.measure import memory, quantiles, table
from exporter.door import backend_access
from stepwatch.system.http_client import Page
from tests.door.backend import Backend
from tests.door.conftest import Door, before
from tests.real import AlertmanagerServer, PrometheusServer
from tests.real.listening import Listening

SMALL, LARGE_TRIES = 1000, 20
POINTS, SERIES = 10_000, 40
_SERIES = " or ".join(f'label_replace(vector(time()), "n", "{number}", "", "")' for number in range(SERIES))
_RANGE = urllib.parse.urlencode({"query": _SERIES, "start": 0, "end": POINTS - 1, "step": 1})
Asked = tuple[str, str, str, int]
"""Title, part, path, and how often."""
REQUESTS: tuple[Asked, ...] = (
    ("Prometheus: an instant query", "prometheus", "/api/v1/query?query=1", SMALL),
    ("Alertmanager: its alerts", "alertmanager", "/api/v2/alerts", SMALL),
    ("Prometheus: a large range", "prometheus", f"/api/v1/query_range?{_RANGE}", LARGE_TRIES),
)
STREAM = ("64 MB of a server that has them ready", "prometheus", "/large", LARGE_TRIES)


@table("request", "answer, kB", "direct: p50, ms", "p99, ms", "door: p50, ms", "p99, ms", "p50 times as long")
def door() -> Iterator[tuple[object, ...]]:
    """Requests through the door, beside the same requests to the ports behind it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        access = folder / "backend"
        backend_access.make(access, mode=0o600)
        (folder / "prometheus.yml").write_text("global: {}\n")
        (folder / "alertmanager.yml").write_text("route: {receiver: a}\nreceivers: [{name: a}]\n")
        options = (f"--web.config.file={access / backend_access.WEB}",)
        prometheus = PrometheusServer("3.13", folder, options=options)
        alertmanager = AlertmanagerServer("0.31", folder, options=options)
        for program in (prometheus, alertmanager):
            program.ready_url = Page(f"{program.url}/-/ready", str(access / backend_access.PASSWORD))
        addresses = {
            "prometheus": f"127.0.0.1:{prometheus.port}",
            "alertmanager": f"127.0.0.1:{alertmanager.port}",
        }
        with prometheus, alertmanager, before(*addresses.values(), access) as front:
            yield from _rows(front, addresses, REQUESTS)
        with Listening(Backend) as backend:
            address = backend.url.removeprefix("http://")
            with before(address, address, access) as front:
                yield from _rows(front, {"prometheus": address}, (STREAM,))


def _rows(
    front: Door, addresses: dict[str, str], requests: tuple[Asked, ...]
) -> Iterator[tuple[object, ...]]:
    login = backend_access.authorization(front.access / backend_access.PASSWORD)
    begun = memory(front.server.pid)
    for title, part, path, count in requests:
        direct, size = _times(addresses[part], path, count, {"Authorization": login})
        through, _ = _times(getattr(front, part), path, count, {})
        figures = (f"{each:.2f}" for each in (*direct, *through))
        yield title, f"{size / 1000:.1f}", *figures, f"{through[0] / direct[0]:.1f}"
    grown = f"{begun:.0f} MB at its start, {memory(front.server.pid):.0f} MB after these"
    yield f"resident memory of the door: {grown}", *[""] * 6


def _times(address: str, path: str, count: int, headers: dict[str, str]) -> tuple[list[float], int]:
    """p50 and p99 in milliseconds over one connection that is kept, and the bytes of an answer."""
    times, size = [], 0
    with closing(http.client.HTTPConnection(address)) as connection:
        for _ in range(count):
            begun = time.perf_counter()
            connection.request("GET", path, headers=headers)
            size = len(connection.getresponse().read())
            times.append(1000 * (time.perf_counter() - begun))
    return quantiles(times, 0.5, 0.99), size
