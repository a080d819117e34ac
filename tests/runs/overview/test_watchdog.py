"""What the run exporter's pages learn from the watchdog."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler

import pytest

from exporter.runs.overview import pollers
from exporter.runs.overview.pollers import Watchdog
from tests.real.waiting import eventually
from tests.runs.speaking import Speaking, says

PATH = "/api/v1/findings"
FAULT = {"summary": "State disk is full", "description": "/data: 0 B free."}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pollers, "INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(pollers, "SILENT_SECONDS", 0.5)


def test_findings_come_and_go() -> None:
    found: list[dict[str, str]] = []

    def findings(handler: BaseHTTPRequestHandler) -> None:
        says(json.dumps({"findings": found}).encode(), 200 if handler.path == PATH else 404)(handler)

    with Speaking(findings) as site:
        asking = Watchdog(site.url)
        asking.start()
        found.append(FAULT)
        eventually(lambda: asking.findings == ("State disk is full. /data: 0 B free.",))
        found.clear()
        eventually(lambda: not asking.findings)
        asking.stop()


def test_a_watchdog_that_does_not_answer_is_a_fault_and_none_at_all_is_not() -> None:
    asking, nobody = Watchdog("http://127.0.0.1:1"), Watchdog(None)
    asking.start()
    nobody.start()
    eventually(lambda: any("The watchdog does not answer" in text for text in asking.findings))
    asking.stop()
    assert nobody.findings == ()
