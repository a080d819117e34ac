"""What the watchdog makes of what Prometheus and Alertmanager say."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from exporter.engine_client import Reply, UnreachableError
from exporter.watchdog.servers import Alertmanager, Prometheus

APPENDED = "prometheus_tsdb_head_samples_appended_total"
FAILED = "prometheus_tsdb_wal_writes_failed_total"
EVALUATED = "prometheus_rule_evaluations_total"
DROPPED = "prometheus_notifications_dropped_total"
LOADED = "prometheus_config_last_reload_success_timestamp_seconds"


@dataclass
class Site:
    """A server as the watchdog asks it, and the time."""

    values: dict[str, float] = field(default_factory=dict)
    ready: int = 200
    status: int = 200
    down: bool = False
    posted: list[str] = field(default_factory=list)

    def get(self, path: str) -> Reply:
        if self.down:
            raise UnreachableError("Connection refused")
        page = "".join(f'{name}{{a="{{b}}"}} {value}\n' for name, value in self.values.items())
        return Reply(self.ready, "") if path == "/-/ready" else Reply(self.status, page)

    def post(self, path: str, kind: str, text: str) -> Reply:
        assert (path, kind) == ("/api/v2/alerts", "application/json")
        self.posted.append(text)
        return Reply(self.status, "bad alert")


@dataclass
class Clock:
    """Both clocks of the watchdog, moved by hand."""

    now: float = 1e9

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", lambda: clock.now)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


class Watched:
    """A Prometheus that is looked at every 10 s, with an Alertmanager that is up since long ago."""

    def __init__(self, clock: Clock, scrapes: float = 5, rules: float = 5) -> None:
        self.clock = clock
        self.site = Site({APPENDED: 0, FAILED: 0, EVALUATED: 0, DROPPED: 0, LOADED: 1})
        self.rates = {APPENDED: 100.0, EVALUATED: 10.0}
        self.alertmanager_answers_since = 1.0
        self._prometheus = Prometheus(self.site, scrapes, rules)  # type: ignore[arg-type]

    def look(self) -> set[str]:
        self.clock.pass_(10)
        for name, rate in self.rates.items():
            self.site.values[name] += rate
        return {found.fault for found in self._prometheus.look(self.alertmanager_answers_since)}

    def until(self, fault: str, most: int = 20) -> int:
        """Seconds from now until a fault is found."""
        begun = self.clock.now
        for _ in range(most):
            if fault in self.look():
                return round(self.clock.now - begun)
        raise AssertionError(f"no {fault} in {most} looks")


@pytest.fixture(name="watched")
def _watched(clock: Clock) -> Watched:
    watched = Watched(clock)
    for _ in range(3):
        assert watched.look() == set()
    return watched


def test_samples_that_stand_still_are_found_within_a_minute_and_the_end_of_it_at_once(
    watched: Watched,
) -> None:
    watched.rates[APPENDED] = 0
    assert watched.until("prometheus_not_storing") <= 40
    watched.rates[APPENDED] = 100
    assert watched.look() == set()


def test_rules_that_are_not_evaluated_are_found_and_a_prometheus_without_rules_is_well(
    watched: Watched,
) -> None:
    watched.rates[EVALUATED] = 0
    assert watched.until("prometheus_not_judging") <= 40
    del watched.rates[EVALUATED], watched.site.values[EVALUATED]
    assert [watched.look() for _ in range(6)] == [set()] * 6


def test_a_prometheus_that_does_not_answer_is_found_and_a_restart_is_not(watched: Watched) -> None:
    watched.site.down = True
    assert [watched.look() for _ in range(3)] == [set()] * 3
    watched.site.down = False
    assert watched.look() == set()
    watched.site.down = True
    assert watched.until("prometheus_down") <= 40


def test_alerts_that_do_not_reach_an_alertmanager_that_is_up_are_found_until_none_is_lost(
    watched: Watched,
) -> None:
    watched.site.values[DROPPED] += 1
    assert watched.look() == {"notifications_dropped"}
    assert [watched.look() for _ in range(9)][-1] == set()


def test_an_alertmanager_that_refuses_an_alert_is_reported_with_its_words(clock: Clock) -> None:
    site = Site(status=200)
    alertmanager = Alertmanager(site)  # type: ignore[arg-type]
    assert alertmanager.post([{}])
    site.status = 400
    assert not alertmanager.post([{}])
    site.status = 200
    (found,) = alertmanager.look()
    assert (found.fault, found.description) == (
        "alertmanager_refuses",
        "400 bad alert. First: read Alertmanager's log.",
    )


def test_one_that_starts_for_two_minutes_is_reported_and_is_not_called_down(watched: Watched) -> None:
    watched.site.ready = 503
    assert watched.until("prometheus_starting") == 130
    watched.site.ready = 200
    assert watched.look() == set()
