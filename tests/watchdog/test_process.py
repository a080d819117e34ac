"""The watchdog as a process: what it serves and posts, and what it starts again."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from exporter.translatable import Text
from exporter.watchdog.finding import EXPIRY_SECONDS, HOLD_SECONDS, Finding, Findings
from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.documented import shown_and_documented
from tests.real import Server, free_port
from tests.real.waiting import eventually

FULL = Finding("disk_full", "/data", Text("State disk is full"), Text("/data: 0 B free."), ("prometheus",))
GONE = Finding("alertmanager_down", "alertmanager", Text("Alertmanager does not answer"), Text(""))
MOST_BYTES = 24 << 20


@pytest.fixture(name="watchdog")
def _watchdog(tmp_path: Path) -> Iterator[Server]:
    """It finds neither Prometheus nor Alertmanager."""
    port, nobody = free_port(), f"http://127.0.0.1:{free_port()}"
    words = (f"--port={port}", f"--prometheus={nobody}", f"--alertmanager={nobody}", "--state")
    command = (sys.executable, "-m", "exporter.watchdog", *words, f"prometheus={tmp_path}")
    with Server(command, f"http://127.0.0.1:{port}/-/healthy", cwd=CHECKOUT) as server:
        server.url = f"http://127.0.0.1:{port}"  # type: ignore[attr-defined]
        yield server


def test_it_reports_servers_that_do_not_answer_as_json_and_as_documented_metrics(watchdog: Any) -> None:
    def found() -> list[dict[str, Any]]:
        findings: list[dict[str, Any]] = json.loads(
            http_client.read(f"{watchdog.url}/api/v1/findings") or ""
        )["findings"]
        return findings

    eventually(lambda: len(found()) == 2, seen=found)
    assert {each["fault"] for each in found()} == {"alertmanager_down", "prometheus_down"}
    page = http_client.read(f"{watchdog.url}/metrics") or ""
    shown, documented = shown_and_documented(page, "The watchdog")
    assert shown == documented
    assert (http_client.metric(page, "process_resident_memory_bytes") or 0) < MOST_BYTES


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/api/v1/findings"])
def test_a_page_of_another_site_reads_nothing(watchdog: Any, path: str) -> None:
    asked = urllib.request.Request(f"{watchdog.url}{path}", headers={"Origin": "http://evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(asked, timeout=30)


def test_a_finding_is_an_alert_until_a_minute_after_its_end_and_then_ends_once() -> None:
    findings = Findings({"severity": "critical", "annotations": {"runbook_url": "r"}, "generator": "g"})
    assert findings.update([FULL, GONE], 100.0) == []
    (alert,) = findings.alerts(100.0)
    assert alert["labels"] == {
        "alertname": "AlertingBroken",
        "severity": "critical",
        "topic": "stack",
        "fault": "disk_full",
        "name": "/data",
    }
    assert alert["annotations"] == {
        "summary": "State disk is full",
        "description": "/data: 0 B free.",
        "runbook_url": "r",
    }
    assert _seconds(alert, "startsAt") == 100
    assert _seconds(alert, "endsAt") == 100 + EXPIRY_SECONDS

    over = 110 + HOLD_SECONDS
    assert findings.update([], 110.0) == [FULL, GONE]
    assert findings.present == ()
    assert _seconds(findings.alerts(over - 11)[0], "endsAt") > over
    assert _seconds(findings.alerts(over)[0], "endsAt") == over
    findings.forget(over)
    assert findings.alerts(over) == []


def _seconds(alert: dict[str, Any], key: str) -> float:
    return datetime.fromisoformat(alert[key]).timestamp()
