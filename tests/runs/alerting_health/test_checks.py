"""What the run exporter makes of what Prometheus, Alertmanager and the disks say, and what it posts."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from exporter.http_client import NoAnswerError, Reply
from exporter.runs import alerting_health
from exporter.runs.alerting_health import EXPIRY_SECONDS, HOLD_SECONDS, RESERVE, AlertingHealth, Space
from tests.real.disk import fill, small_disk
from tests.real.waiting import eventually

APPENDED = "prometheus_tsdb_head_samples_appended_total"
FAILED = "prometheus_tsdb_wal_writes_failed_total"
EVALUATED = "prometheus_rule_evaluations_total"
DROPPED = "prometheus_notifications_dropped_total"
LOADED = "prometheus_config_last_reload_success_timestamp_seconds"
ROOMY = Space("/data", "/dev/vdb", "ext4", 100 << 30, 50 << 30, 1000000, 900000)


@dataclass
class Site:
    """A server as the exporter asks it."""

    values: dict[str, float] = field(default_factory=dict)
    ready: int = 200
    refusal: str = ""
    down: bool = False
    posted: list[dict[str, Any]] = field(default_factory=list)

    def get(self, path: str) -> Reply:
        if self.down:
            raise NoAnswerError("connection", "Connection refused")
        page = "".join(f'{name}{{a="{{b}}"}} {value}\n' for name, value in self.values.items())
        return Reply(self.ready, b"") if path == "/-/ready" else Reply(200, page.encode())

    def post(self, path: str, value: list[dict[str, Any]]) -> Reply:
        assert path == "/api/v2/alerts"
        if self.down:
            raise NoAnswerError("connection", "Connection refused")
        self.posted = value
        return Reply(400 if self.refusal else 200, self.refusal.encode())


class Watched:
    """A stack that is checked every 10 s of a clock that the test moves, and was well for two minutes."""

    def __init__(self, patch: pytest.MonkeyPatch, folders: tuple[str, ...] = ()) -> None:
        self.now = 1e9
        patch.setattr(time, "time", lambda: self.now)
        patch.setattr(time, "monotonic", lambda: self.now)
        self.prometheus = Site({APPENDED: 0, FAILED: 0, EVALUATED: 0, DROPPED: 0, LOADED: 1})
        self.alertmanager = Site({"process_start_time_seconds": 1})
        self.rates = {APPENDED: 100.0, EVALUATED: 10.0}
        settings = {"annotations": {"runbook_url": "r"}, "labels": {"cluster": "c"}}
        servers: Any = self.prometheus, self.alertmanager
        self.health = AlertingHealth(*servers, folders, settings)
        assert [self.check() for _ in range(12)] == [set()] * 12

    def check(self) -> set[str]:
        """Return the faults of the next check."""
        self.now += 10
        self.alertmanager.posted = []
        for name, rate in self.rates.items():
            self.prometheus.values[name] += rate
        self.health.check()
        return {each["fault"] for each in json.loads(self.health.answer(None).body)["findings"]}  # type: ignore[arg-type]

    def until(self, fault: str) -> float:
        """Return the seconds from now until a fault is found."""
        begun = self.now
        for _ in range(20):
            if fault in self.check():
                return self.now - begun
        raise AssertionError(f"no {fault}")

    def posted(self, fault: str) -> dict[str, Any]:
        """Return the alert of a fault that the last check posted."""
        (alert,) = (each for each in self.alertmanager.posted if each["labels"]["fault"] == fault)
        return alert


@pytest.fixture(name="watched")
def _watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_what_stands_still_is_found_within_a_minute_and_its_end_at_once(watched: Watched) -> None:
    for counter, fault in ((APPENDED, "prometheus_not_storing"), (EVALUATED, "prometheus_not_judging")):
        rate, watched.rates[counter] = watched.rates[counter], 0
        assert watched.until(fault) <= 40
        watched.rates[counter] = rate
        assert watched.check() == set()
    watched.rates[FAILED] = 1
    assert watched.until("prometheus_not_storing") <= 20


def test_a_prometheus_without_rules_is_well(watched: Watched) -> None:
    del watched.rates[EVALUATED], watched.prometheus.values[EVALUATED]
    assert [watched.check() for _ in range(6)] == [set()] * 6


def test_one_that_does_not_answer_is_found_and_a_restart_is_not(watched: Watched) -> None:
    for site, fault in (
        (watched.prometheus, "prometheus_down"),
        (watched.alertmanager, "alertmanager_down"),
    ):
        site.down = True
        assert [watched.check() for _ in range(3)] == [set()] * 3
        site.down = False
        assert watched.check() == set()
        site.down = True
        assert watched.until(fault) <= 40
        site.down = False
        watched.check()
    watched.prometheus.ready = 503
    assert watched.until("prometheus_starting") == 130


def test_alerts_that_do_not_reach_an_alertmanager_that_is_up_are_found_until_none_is_lost(
    watched: Watched,
) -> None:
    watched.prometheus.values[DROPPED] += 1
    assert watched.check() == {"notifications_dropped"}
    assert [watched.check() for _ in range(9)][-1] == set()
    watched.alertmanager.down = True
    watched.check()
    watched.alertmanager.down = False
    watched.prometheus.values[DROPPED] += 1
    assert watched.check() == set()


def test_an_alertmanager_that_refuses_an_alert_is_reported_with_its_words(watched: Watched) -> None:
    watched.alertmanager.refusal = "bad alert"
    watched.prometheus.down = True
    watched.until("alertmanager_refuses")
    assert "400 bad alert. First: read Alertmanager's log." in "".join(watched.health.faults)


def test_a_fault_is_an_alert_until_a_minute_after_its_end_and_then_ends_once(watched: Watched) -> None:
    def ends(key: str = "endsAt") -> float:
        return datetime.fromisoformat(watched.posted("prometheus_down")[key]).timestamp() - watched.now

    watched.prometheus.down = True
    watched.until("prometheus_down")
    alert = watched.posted("prometheus_down")
    assert alert["labels"] == {
        "alertname": "AlertingBroken",
        "severity": "critical",
        "topic": "stack",
        "fault": "prometheus_down",
        "name": "prometheus",
        "cluster": "c",
    }
    assert alert["annotations"] == {
        "summary": "Prometheus does not answer",
        "description": "Connection refused, for 30 s: no run is monitored. First: run `make status`, then "
        "read Prometheus' log.",
        "runbook_url": "r",
    }
    assert (ends("startsAt"), ends()) == (0, EXPIRY_SECONDS)

    watched.prometheus.down = False
    for _ in range(round(HOLD_SECONDS / 10) - 1):
        assert watched.check() == set()
        assert ends() == EXPIRY_SECONDS
    watched.check()
    assert ends() == 0
    watched.check()
    assert watched.alertmanager.posted == []


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_full_disk_is_one_fault_whatever_prometheus_does_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with small_disk(tmp_path / "disk", kind) as disk:
        watched = Watched(monkeypatch, (f"{disk}/prometheus", f"{disk}/exporter/new"))
        fill(disk / "ballast")
        watched.rates = {APPENDED: 0, EVALUATED: 10, FAILED: 1}
        assert [watched.check() for _ in range(6)] == [{"disk_full"}] * 6
        posted, (said,) = watched.posted("disk_full"), watched.health.faults
        (disk / "ballast").unlink()
        watched.rates[APPENDED] = 100
        assert watched.check() == set()
    assert posted["labels"]["name"] == str(disk)
    assert said == (
        f"State disk is full. {disk}: 0.0 MiB free of 0.1 GiB. Prometheus stores no samples, so no run is "
        "monitored; Alertmanager loses silences if it restarts. First: free space there; no restart is "
        "needed."
    )


@pytest.mark.parametrize(
    ("room", "found"),
    [
        ({"free": RESERVE}, set()),
        ({"free": RESERVE - 1}, {"disk_full"}),
        ({"files": 0, "files_free": 0}, set()),
        ({"files_free": 99}, {"disk_full"}),
    ],
)
def test_the_last_bytes_and_inodes_count_as_none(
    monkeypatch: pytest.MonkeyPatch, room: dict[str, int], found: set[str]
) -> None:
    watched = Watched(monkeypatch, ("/",))
    monkeypatch.setattr(alerting_health, "space_of", lambda _: ROOMY._replace(**room))
    assert watched.check() == found


def test_a_disk_that_hangs_is_reported_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    hung = Event()

    def asked(path: str) -> Space:
        if path == "/hangs":
            hung.wait()
        return ROOMY._replace(mountpoint=path, free=0)

    watched = Watched(monkeypatch)
    monkeypatch.setattr(alerting_health, "space_of", asked)
    watched.health._disks = alerting_health.Disks(("/hangs", "/full"))
    assert watched.check() == {"disk_full"}
    assert watched.until("disk_hung") <= 40
    assert "/hangs: /hangs does not answer" in "".join(watched.health.faults)
    hung.set()
    eventually(lambda: watched.check() == {"disk_full"})
