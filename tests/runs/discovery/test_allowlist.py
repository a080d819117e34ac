"""What goes wrong in finding servers is counted, and reported once."""

from __future__ import annotations

import pytest

from exporter.runs.discovery.address import Allowlist
from exporter.runs.files import notice


class Clock:
    """Time that passes when a test says so."""

    now = 7.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(notice, "time", clock)
    return clock


def test_a_flood_of_one_kind_hides_no_other_kind_and_no_source(
    allowlist: Allowlist, logged: list[str]
) -> None:
    allowlist.passed("verl_file", "/x", [f"8.8.{n // 250}.{n % 250}:80" for n in range(1200)])
    assert len(logged) == notice.MOST_HOURLY
    allowlist.note("verl_file", "damaged", "/x is not valid YAML")
    allowlist.note("ray_file", "address", "/y: 8.8.8.8:80")

    assert logged[notice.MOST_HOURLY :] == ["verl_file: /x is not valid YAML.", "ray_file: /y: 8.8.8.8:80."]
    assert allowlist.counts["verl_file", "address"] == 1200


def test_after_a_flood_new_texts_are_reported_within_the_hour(
    allowlist: Allowlist, logged: list[str], clock: Clock
) -> None:
    for number in range(3 * notice.MOST_HOURLY):
        allowlist.note("log", "address", str(number))
    clock.now += notice.HOUR
    allowlist.note("log", "address", "new")
    allowlist.note("log", "address", str(notice.MOST_HOURLY - 1))

    assert logged[notice.MOST_HOURLY :] == ["log: new."]


def test_a_flood_that_goes_on_fills_no_memory(allowlist: Allowlist, logged: list[str], clock: Clock) -> None:
    for number in range(5 * notice.MOST_HOURLY):
        allowlist.note("log", "address", str(number))
        clock.now += notice.HOUR
    (topic,) = allowlist._once._topics.values()

    assert len(logged) == 5 * notice.MOST_HOURLY
    assert len(topic.texts) == notice.MOST_HOURLY
