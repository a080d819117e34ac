"""Prometheus's write-ahead log after a repair that had no room."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.system.environment import CHECKOUT
from tests.real import PrometheusServer, query
from tests.real.waiting import eventually

pytestmark = pytest.mark.e2e

START = CHECKOUT / "prometheus/start.sh"


@pytest.fixture(name="server", params=["2.42", "3.13"])
def _server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PrometheusServer]:
    """A Prometheus that scrapes itself, started as ours."""
    server = PrometheusServer(request.param, tmp_path)
    scraped = {"job_name": "own", "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}
    settings = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scraped]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(settings))
    server.command = ["sh", str(START), f"{server.folder}/data", *server.command]
    with server:
        yield server


def scrapes(server: PrometheusServer) -> int:
    found = query(server.url, "count_over_time(up[1h])")
    return int(found[0]["value"][1]) if found else 0


def interrupt_a_repair(wal: Path) -> Path:
    """Leave the log as Prometheus does when the disk is full; return the segment that it could not copy."""
    segment = max(wal.glob("[0-9]*"))
    whole = segment.with_name(f"{segment.name}.repair")
    segment.rename(whole)
    with whole.open("ab") as log:
        log.write(b"\x09half a record")
    segment.touch()
    return whole


def test_samples_outlive_a_repair_that_had_no_room(server: PrometheusServer) -> None:
    eventually(lambda: scrapes(server) >= 3)
    before = scrapes(server)
    server.kill()
    whole = interrupt_a_repair(server.folder / "data/wal")

    server.start()

    assert scrapes(server) >= before
    assert not whole.exists()


def test_a_log_that_went_on_after_an_old_repair_is_left_alone(server: PrometheusServer) -> None:
    eventually(lambda: scrapes(server) >= 3)
    server.kill()
    whole = interrupt_a_repair(server.folder / "data/wal")
    whole.with_name(f"{int(whole.stem) + 1:08}").touch()

    server.start()

    assert whole.exists()
    eventually(lambda: scrapes(server) >= 1)
