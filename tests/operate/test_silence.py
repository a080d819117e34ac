"""`python -m stepwatch silence`, on real Alertmanagers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from stepwatch.services.health_report import ALERTS, SILENCES, HealthReport, firing
from stepwatch.system import http_client
from tests.operate.conftest import Site
from tests.real import AlertmanagerServer, eventually, free_port

HOUR = timedelta(hours=1)
Silences = Callable[[], list[dict[str, Any]]]


@pytest.fixture(name="alertmanager", params=["0.25", "0.31"])
def _alertmanager(request: pytest.FixtureRequest, site: Site, tmp_path: Path) -> Iterator[AlertmanagerServer]:
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: a}\nreceivers: [{name: a}]\n")
    with AlertmanagerServer(request.param, tmp_path, port=site.ports["alertmanager"]) as server:
        yield server


def read(server: AlertmanagerServer, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(http_client.read(f"{server.url}{path}") or "null")
    return found


def muted(server: AlertmanagerServer) -> set[str]:
    """The runs of the alerts that it holds back."""
    alerts = read(server, "/api/v2/alerts")
    return {alert["labels"]["run"] for alert in alerts if alert["status"]["state"] == "suppressed"}


def test_all_alerts_of_the_run_and_no_others_are_muted_until_the_silence_is_ended(
    site: Site, alertmanager: AlertmanagerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(timezone.utc)
    runs = ("ppo/gsm8k", "ppo/gsm8k-2", "sft-7")
    alerts = [{"labels": {"alertname": "A", "run": run}, "startsAt": now.isoformat()} for run in runs]
    assert http_client.order(f"{alertmanager.url}/api/v2/alerts", alerts) == ""

    assert site.run("silence", "ppo/gsm8k", "--for", "90m", "--note", "new data") == 0
    said = capsys.readouterr().out
    (silence,) = read(alertmanager, "/api/v2/silences")
    end = datetime.fromisoformat(silence["endsAt"].replace("Z", "+00:00"))

    eventually(lambda: muted(alertmanager) == {"ppo/gsm8k"})
    assert silence["comment"] == "new data"
    assert abs(end - now - 1.5 * HOUR) < timedelta(minutes=1)
    assert f"ppo/gsm8k is silenced for 1h30m, until {end.astimezone():%H:%M}" in said
    has_page = alertmanager.tool.version.startswith("0.31")  # Debian builds 0.25 without
    assert (f"{alertmanager.url}/#/silences/{silence['id']}" in said) is has_page
    assert "To end it earlier: `make silence RUN=ppo/gsm8k FOR=0`" in said

    assert site.run("silence", "sft-7", "--for", "1h") == 0
    eventually(lambda: muted(alertmanager) == {"ppo/gsm8k", "sft-7"})
    assert site.run("silence", "ppo/gsm8k", "--for", "0") == 0
    assert "Ended: 1 silence of ppo/gsm8k." in capsys.readouterr().out
    eventually(lambda: muted(alertmanager) == {"sft-7"})
    assert site.run("silence", "ppo/gsm8k", "--for", "0") == 0
    assert "No silence is about ppo/gsm8k alone." in capsys.readouterr().out


def test_status_lists_a_silenced_alert_with_the_end_of_its_silence(
    site: Site, alertmanager: AlertmanagerServer
) -> None:
    begun = datetime.now(timezone.utc).isoformat()
    alerts = [{"labels": {"alertname": "A", "run": run}, "startsAt": begun} for run in ("ppo/gsm8k", "sft-7")]
    assert http_client.order(f"{alertmanager.url}/api/v2/alerts", alerts) == ""
    assert site.run("silence", "ppo/gsm8k", "--for", "25h") == 0
    assert site.run("silence", "ppo/gsm8k", "--for", "1h") == 0
    eventually(lambda: muted(alertmanager) == {"ppo/gsm8k"})

    texts = [http_client.read(f"{alertmanager.url}{page}") for page in (ALERTS, SILENCES)]
    said = {alert.partition("  fired at")[0]: alert for alert in firing(*texts)}

    end = datetime.now().astimezone() + 25 * HOUR
    assert re.search(rf" \(silenced until \d\d:\d\d, {end:%d %b}\): ", said["A  ppo/gsm8k"])
    assert "silenced" not in said["A  sft-7"]


def test_status_says_once_that_an_alertmanager_has_no_web_page_and_names_the_command(
    alertmanager: AlertmanagerServer,
) -> None:
    address, said, started = alertmanager.url.removeprefix("http://"), [""], [""]

    report = HealthReport("", address, "", "")
    report.show(http_client.read_all(report.pages), said.append)
    HealthReport(f"127.0.0.1:{free_port()}", address, "", "").show_after_start(started.append)

    lacking = [line for line in said + started if "built without its web page" in line]
    assert len(lacking) == (2 if alertmanager.tool.version.startswith("0.25") else 0)
    assert all("`make silence RUN=name`" in line for line in lacking)


def test_two_hours_if_nothing_is_said(site: Site, alertmanager: AlertmanagerServer) -> None:
    assert site.run("silence", "sft-7") == 0
    (silence,) = read(alertmanager, "/api/v2/silences")
    begin, end = (
        datetime.fromisoformat(silence[key].replace("Z", "+00:00")) for key in ("startsAt", "endsAt")
    )

    assert abs(end - begin - 2 * HOUR) < timedelta(seconds=5)


def test_a_run_that_is_not_there_is_refused_with_the_nearest_names(
    site: Site, alertmanager: AlertmanagerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.run("silence", "ppo/gsm") == 2

    assert capsys.readouterr().err.startswith(
        "Nothing was silenced. There is no run named ppo/gsm. Similar names: ppo/gsm8k, "
    )
    assert read(alertmanager, "/api/v2/silences") == []


def test_without_an_exporter_the_name_is_taken_as_it_is_and_that_is_said(
    site: Site, alertmanager: AlertmanagerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    site.exporter.end()

    assert site.run("silence", "ppo/gsm8k") == 0
    assert "so the run name ppo/gsm8k was not checked" in capsys.readouterr().out
    assert len(read(alertmanager, "/api/v2/silences")) == 1


def test_without_an_alertmanager_it_says_so_and_the_fix(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.run("silence", "ppo/gsm8k") == 2

    said = capsys.readouterr().err
    assert said.startswith("Alertmanager does not answer at http://127.0.0.1:")
    assert "`make up`" in said


@pytest.mark.parametrize("span", ["2x", "", "0s", "2 h", "366d", "-1h"])
def test_an_invalid_time_is_refused_with_what_was_expected(
    site: Site, capsys: pytest.CaptureFixture[str], span: str
) -> None:
    assert site.run("silence", f"--for={span}", "ppo/gsm8k") == 2
    assert "Expected: " in capsys.readouterr().err
