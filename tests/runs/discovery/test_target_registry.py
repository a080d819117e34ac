"""Which targets are served, as their sources report them and as they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from exporter.runs.discovery.address import MOST
from exporter.runs.discovery.targets import PROVE_SECONDS, Outcome, Target, TargetRegistry
from stepwatch.config import Config

FORGET = 600.0
ADDRESS = "10.0.0.7:8000"


def target(source="verl_file", address=ADDRESS, *, over=False, path="/metrics", **labels):
    return Target(address, {"job": "rollout", **labels}, path, source, over)


@pytest.fixture(name="registry")
def _registry(allowlist) -> TargetRegistry:
    return TargetRegistry(FORGET, allowlist)


@pytest.fixture(name="served")
def _served(registry: TargetRegistry) -> Callable[[float], Mapping[str, Any]]:
    return lambda now: {entry.address: entry for entry in registry.served(now)}


def test_one_that_never_took_a_connection_leaves_before_anyone_is_notified(registry, served):
    registry.update([target()], 0)
    registry.record(Outcome(ADDRESS, False), 1)

    assert served(PROVE_SECONDS - 1)
    assert not served(PROVE_SECONDS)
    assert PROVE_SECONDS < Config().alerts.EngineGone.for_.seconds < FORGET
    assert Config().discovery.forget_after.seconds == FORGET


def test_who_knows_the_run_knows_whether_it_is_over(registry, served):
    registry.update([target(), target("log", run="ppo", over=True)], 0)
    assert not served(0)
    registry.update([target(over=True), target("log", run="ppo")], 0)
    assert served(0)
    registry.update([target("log", run="old", over=True), target("log", run="new")], 0)
    assert served(0)
    registry.update([target(over=True), target("other")], 0)
    assert served(0)


def test_a_full_book_keeps_what_it_has_and_counts_the_rest(registry, served, allowlist):
    reported = [target(address=f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:1") for n in range(MOST + 2)]
    registry.update(reported[:MOST], 0)
    registry.update(reported[::-1], 0)

    assert served(0).keys() == {one.address for one in reported[:MOST]}
    assert allowlist.counts == {("verl_file", "too_many"): 2}


@pytest.mark.parametrize("status", [307, 404])
def test_a_server_without_a_page_is_not_served_until_it_has_one(registry, served, allowlist, logged, status):
    registry.update([target("log", run="ppo")], 0)
    assert registry.path(ADDRESS) == "/metrics"
    for now in (1, 2):
        registry.record(Outcome(ADDRESS, True, status), now)
        assert not served(now)
        assert registry.path(ADDRESS) == "/metrics"

    assert allowlist.counts == {("log", "no_page"): 1}
    assert "servers of ppo have no page /metrics," in logged[0]
    registry.record(Outcome(ADDRESS, True, 200), 3)
    assert served(3)
    assert registry.path(ADDRESS) == ""


@pytest.mark.parametrize("status", [None, 500, 503])
def test_a_server_that_is_too_busy_to_show_its_page_is_served(registry, served, status):
    registry.update([target()], 0)
    registry.record(Outcome(ADDRESS, True, status), 1)

    assert served(1)
    assert registry.path(ADDRESS) == "/metrics"


def test_a_page_that_was_there_and_is_not_any_more_is_a_matter_for_alerts(registry, served):
    registry.update([target()], 0)
    registry.record(Outcome(ADDRESS, True, 200), 1)
    registry.record(Outcome(ADDRESS, True, 404), 2)

    assert served(2)
