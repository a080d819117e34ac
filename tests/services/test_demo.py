from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from stepwatch.services import lifecycle
from stepwatch.system import http_client
from tests.real import AlertmanagerServer, eventually

pytestmark = pytest.mark.e2e

ROUTE = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"
GPUS = "127.0.0.1:9411"


@pytest.fixture(name="alertmanager", params=["0.25", "0.31"])
def _alertmanager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AlertmanagerServer]:
    (tmp_path / "alertmanager.yml").write_text(ROUTE)
    with AlertmanagerServer(request.param, tmp_path) as server:
        yield server


def alert(**labels: str) -> dict[str, Any]:
    """An alert as Prometheus sends it: it ends by itself in four minutes, unless sent again."""
    now = datetime.now(timezone.utc)
    times = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(minutes=4)).isoformat()}
    return {"labels": {"alertname": "Any", **labels}, "annotations": {"a": "b"}, **times}


def held(server: AlertmanagerServer) -> list[dict[str, str]]:
    alerts = json.loads(http_client.read(f"{server.url}/api/v2/alerts") or "[]")
    return [{key: value for key, value in each["labels"].items() if key != "alertname"} for each in alerts]


def test_the_demo_s_alerts_end_and_no_others(alertmanager: AlertmanagerServer) -> None:
    others = [{"run": "ppo/demo"}, {"instance": "10.0.0.7:9411"}, {"run": "demo"}, {"job": "gpu"}]
    ours = [{"run": "demo/hangs"}, {"instance": GPUS, "gpu": "5"}]
    http_client.order(f"{alertmanager.url}/api/v2/alerts", [alert(**labels) for labels in [*ours, *others]])
    eventually(lambda: len(held(alertmanager)) == 6)

    assert lifecycle.end_demo_alerts(alertmanager.url, GPUS) == 2

    eventually(lambda: len(held(alertmanager)) == 4)
    assert sorted(held(alertmanager), key=str) == sorted(others, key=str)
    assert lifecycle.end_demo_alerts(alertmanager.url, GPUS) == 0
