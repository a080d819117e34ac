"""What the run exporter's pages learn from a real Alertmanager about silences."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from exporter.runs.overview import pollers
from exporter.runs.overview.models import Firing
from exporter.runs.overview.pollers import Silences
from stepwatch.system import http_client
from tests.real import AlertmanagerServer
from tests.real.waiting import eventually

LABELS = {"alertname": "KLHigh", "severity": "warning", "run": "ppo/gsm8k"}
SILENCED, OTHER = (
    Firing("KLHigh", "warning", "kl", "", "", "", "", "", 1.0, 0.0, frozenset({**LABELS, "run": run}.items()))
    for run in ("ppo/gsm8k", "ppo/math")
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pollers, "INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr(pollers, "SILENT_SECONDS", 1.0)


@pytest.fixture(name="alertmanager", params=["0.25", "0.31"])
def _alertmanager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AlertmanagerServer]:
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: a}\nreceivers: [{name: a}]\n")
    with AlertmanagerServer(request.param, tmp_path) as server:
        yield server


@pytest.fixture(name="asking")
def _asking(alertmanager: AlertmanagerServer) -> Iterator[Silences]:
    asking = Silences(alertmanager.url)
    asking.start()
    yield asking
    asking.stop()


def silence(alertmanager: AlertmanagerServer, seconds: float, **labels: str) -> float:
    """Silence one of two alerts, with more labels if they are given; returns when that ends."""
    begin = time.time()
    alerts = [{"labels": dict(alert.labels)} for alert in (SILENCED, OTHER)]
    assert http_client.order(f"{alertmanager.url}/api/v2/alerts", alerts) == ""
    of = {"run": "ppo/gsm8k", **labels}
    wanted = {
        "matchers": [{"name": name, "value": of[name], "isRegex": False, "isEqual": True} for name in of],
        "startsAt": datetime.fromtimestamp(begin, timezone.utc).isoformat(),
        "endsAt": datetime.fromtimestamp(begin + seconds, timezone.utc).isoformat(),
        "createdBy": "test",
        "comment": "test",
    }
    assert http_client.order(f"{alertmanager.url}/api/v2/silences", wanted) == ""
    return begin + seconds


def test_a_silenced_alert_has_the_end_of_its_last_silence_and_others_have_none(
    alertmanager: AlertmanagerServer, asking: Silences
) -> None:
    silence(alertmanager, 600)
    end = silence(alertmanager, 3600)

    eventually(lambda: asking.mark([SILENCED])[0].silenced_until == pytest.approx(end, abs=0.01))
    assert asking.mark([OTHER]) == (OTHER,)


def test_alerts_are_known_by_the_labels_with_which_they_are_sent(alertmanager: AlertmanagerServer) -> None:
    asking = Silences(alertmanager.url, {"cluster": "night"})
    asking.start()
    by_day = replace(SILENCED, labels=SILENCED.labels | {("cluster", "day")})
    sent = [{"labels": {"cluster": "night", **dict(alert.labels)}} for alert in (SILENCED, by_day)]
    assert http_client.order(f"{alertmanager.url}/api/v2/alerts", sent) == ""
    end = silence(alertmanager, 3600, cluster="night")

    def ends() -> list[float | None]:
        return [alert.silenced_until for alert in asking.mark([SILENCED, by_day])]

    try:
        eventually(lambda: ends() == [pytest.approx(end, abs=0.01), None])
    finally:
        asking.stop()


def test_an_alertmanager_that_is_gone_silences_nothing(
    alertmanager: AlertmanagerServer, asking: Silences
) -> None:
    silence(alertmanager, 3600)
    eventually(lambda: asking.mark([SILENCED]) != (SILENCED,))

    alertmanager.stop()

    eventually(lambda: asking.mark([SILENCED]) == (SILENCED,))


def test_without_an_alertmanager_nothing_is_asked() -> None:
    asking = Silences(None)
    asking.start()

    assert asking.mark([SILENCED]) == (SILENCED,)


def test_an_inhibited_alert_names_its_cause(tmp_path: Path) -> None:
    (tmp_path / "alertmanager.yml").write_text(
        "route: {receiver: a}\nreceivers: [{name: a}]\ninhibit_rules:\n"
        "- {source_matchers: [alertname=RunFailed], target_matchers: [alertname=KLHigh], equal: [run]}\n"
    )
    with AlertmanagerServer("0.31", tmp_path) as server:
        asking = Silences(server.url)
        cause_of = {"alertname": "RunFailed", "run": "ppo/gsm8k"}
        alerts = [{"labels": labels} for labels in (dict(SILENCED.labels), cause_of)]
        assert http_client.order(f"{server.url}/api/v2/alerts", alerts) == ""

        def cause() -> str:
            asking.poll()
            return asking.mark([SILENCED])[0].inhibited_by

        eventually(lambda: cause() == "RunFailed", pause=0.2)
        assert not asking.mark([OTHER])[0].inhibited_by
