"""What the run exporter's pages learn from the watchdog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from exporter.runs.overview import pollers
from exporter.runs.overview.pollers import Watchdog
from tests.real.listening import Listening
from tests.real.waiting import eventually

FAULT = {"summary": "State disk is full", "description": "/data: 0 B free."}


class Site(Listening):
    """A watchdog that finds these faults."""

    def __init__(self) -> None:
        self.found: list[dict[str, str]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if self.path == "/api/v1/findings" else 404)
                self.end_headers()
                self.wfile.write(json.dumps({"findings": site.found}).encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Say nothing."""

        super().__init__(Handler)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pollers, "INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(pollers, "SILENT_SECONDS", 0.5)


@pytest.fixture(name="site")
def _site() -> Iterator[Site]:
    with Site() as site:
        yield site


def test_findings_come_and_go(site: Site) -> None:
    asking = Watchdog(site.url)
    asking.start()
    site.found = [FAULT]
    eventually(lambda: asking.findings == ("State disk is full. /data: 0 B free.",))
    site.found = []
    eventually(lambda: not asking.findings)
    asking.stop()


def test_a_watchdog_that_does_not_answer_is_a_fault_and_none_at_all_is_not() -> None:
    asking, nobody = Watchdog("http://127.0.0.1:1"), Watchdog(None)
    asking.start()
    nobody.start()
    eventually(lambda: any("The watchdog does not answer" in text for text in asking.findings))
    asking.stop()
    assert nobody.findings == ()
