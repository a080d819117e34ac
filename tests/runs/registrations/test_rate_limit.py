"""How many requests may come, of one client and of all."""

from __future__ import annotations

import pytest

from exporter.runs.discovery.registration_api import RateLimit


def passed(rate: RateLimit, client: str, requests: int, now: float = 0.0) -> int:
    return sum(not rate.wait(client, now) for _ in range(requests))


def test_time_gives_back_what_was_taken_and_never_more() -> None:
    rate = RateLimit()
    passed(rate, "10.0.0.7", 60)

    assert passed(rate, "10.0.0.7", 100, now=5.0) == 5
    assert passed(rate, "10.0.0.7", 100, now=5000.0) == 60


def test_a_flood_of_one_client_takes_nothing_from_another() -> None:
    rate = RateLimit()
    passed(rate, "10.0.0.7", 100_000)

    assert passed(rate, "10.0.0.8", 60) == 60


@pytest.mark.slow
def test_all_clients_together_are_bounded_and_so_is_what_is_remembered_of_them() -> None:
    rate = RateLimit()

    assert sum(passed(rate, f"10.0.{client // 256}.{client % 256}", 1) for client in range(5000)) == 300
    assert len(rate._each) == 300
    assert passed(rate, "10.9.9.9", 1, now=60.0) == 1
    assert len(rate._each) == 1
