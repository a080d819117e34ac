"""The answer that Prometheus gets, and who may spoil it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from exporter.http.message import Request
from exporter.runs.discovery import targets as module
from exporter.runs.discovery.address import AddressMap
from exporter.runs.discovery.targets import Discovery, Target
from tests.real import eventually
from tests.runs.discovery.verl import Engine

LABELS = {"job": "rollout", "role": "rollout"}


class Reported:
    """A source that reports what a test says."""

    def __init__(self, name: str, *targets: Target) -> None:
        self.name, self.reported, self.read = name, list(targets), 5.0

    def targets(self):
        if isinstance(self.reported, Exception):
            raise self.reported
        return iter(self.reported)


def target(address, source="a", **more):
    return Target(address, {**LABELS, **more.pop("labels", {})}, source=source, **more)


@pytest.fixture(name="quick")
def _quick(monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "TURN_SECONDS", 0.02)
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.01)
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.2)


@pytest.fixture(name="discover")
def _discover(allowlist, quick):
    """A discovery of some sources that is driven by hand."""

    def discover(*sources, forget_after=600.0, address_map=None, ready=lambda: True):
        made.append(Discovery(sources, allowlist, forget_after, address_map or AddressMap(), ready))
        return made[-1]

    made = []
    yield discover
    for found in made:
        found._prober.close()


def answer(found):
    page = found.routes()["/sd/rollout"]["GET"](Request("GET", "/sd/rollout", "", {}, b""))
    return page.status, page.kind, page.body


def groups(found):
    return json.loads(answer(found)[2])


def addresses(found):
    return {address for group in groups(found) for address in group["targets"]}


def until(found, wanted):
    """Go on until these are the addresses that are served."""

    def served():
        found.turn()
        return addresses(found) == wanted

    eventually(served, pause=0, seen=lambda: groups(found))


def samples(found):
    return {
        (family.name, *labels.values()): value
        for family, values in found.samples()
        for labels, value in values
    }


def test_the_answer_is_http_sd_with_a_group_for_each_set_of_labels(discover):
    found = discover(
        Reported(
            "a",
            target("127.0.0.7:1"),
            target("127.0.0.8:1"),
            target("127.0.0.9:1", labels={"run": 'ppo/<b>"x" é'}),
            target("127.0.0.9:2", path="/engine_metrics"),
        )
    )
    found.turn()

    status, kind, body = answer(found)
    assert (status, kind) == ("200 OK", "application/json")
    assert json.loads(body) == [
        {"targets": ["127.0.0.7:1", "127.0.0.8:1"], "labels": LABELS},
        {"targets": ["127.0.0.9:1"], "labels": {**LABELS, "run": 'ppo/<b>"x" é'}},
        {"targets": ["127.0.0.9:2"], "labels": {**LABELS, "__metrics_path__": "/engine_metrics"}},
    ]


def test_no_answer_is_given_before_everything_was_read_so_that_prometheus_keeps_what_it_has(discover):
    read = False
    found = discover(Reported("a", target("127.0.0.7:1")), ready=lambda: read)
    found.turn()
    assert answer(found)[0] == "503 Service Unavailable"
    read = True
    time.sleep(0.05)
    found.turn()
    assert addresses(found) == {"127.0.0.7:1"}
    read = False
    found.turn()
    assert addresses(found) == {"127.0.0.7:1"}


def test_a_source_that_fails_keeps_its_last_answer_and_costs_no_other_its_targets(
    discover, allowlist, logged
):
    first, second = Reported("a", target("127.0.0.7:1")), Reported("b", target("127.0.0.8:1", "b"))
    found = discover(first, second)
    found.turn()
    first.reported = ValueError("of a kind that was not foreseen")
    second.reported.append(target("127.0.0.9:1", "b"))
    found.turn()

    assert addresses(found) == {"127.0.0.7:1", "127.0.0.8:1", "127.0.0.9:1"}
    assert allowlist.counts == {("a", "fault"): 1}
    assert "Traceback" not in logged[0]
    first.reported = []
    found.turn()
    assert addresses(found) == {"127.0.0.8:1", "127.0.0.9:1"}


def test_a_turn_that_fails_is_counted_and_freezes_nothing(allowlist, quick, monkeypatch):
    found = Discovery([Reported("a", target("127.0.0.9:1"))], allowlist, 600.0, AddressMap())
    turn, faults = found.turn, [KeyError("a")]

    def fails_once():
        if faults:
            raise faults.pop()
        turn()

    monkeypatch.setattr(found, "turn", fails_once)
    found.start()
    eventually(lambda: answer(found)[0] == "200 OK")
    found.stop()

    assert addresses(found) == {"127.0.0.9:1"}
    assert allowlist.counts == {("discovery", "fault"): 1}


def test_a_server_that_is_lost_leaves_after_a_time_and_comes_back(discover, listener):
    there, lost = listener(), listener()
    found = discover(Reported("a", target(there.address), target(lost.address)), forget_after=1.0)
    until(found, {there.address, lost.address})
    for _ in range(5):
        found.turn()
    lost.go()
    until(found, {there.address})
    lost.come_back()
    until(found, {there.address, lost.address})


def test_the_servers_of_a_run_that_ended_leave_as_soon_as_they_are_gone(discover, listener):
    server = listener()
    source = Reported("a", target(server.address))
    found = discover(source)
    until(found, {server.address})
    source.reported = [target(server.address, over=True)]
    for _ in range(5):
        found.turn()
    assert addresses(found) == {server.address}
    server.go()
    until(found, set())


def test_a_server_without_a_page_of_metrics_is_left_out(discover):
    with Engine() as engine:
        found = discover(
            Reported("a", target(engine.address, path="/other"), target(engine.address, "a")),
        )
        until(found, set())
        assert samples(found)["stepwatch_discovery_targets", "a", "pageless"] == 1


def test_from_a_container_loopback_is_the_machine_around_it(discover, listener):
    there, gone = listener(), listener()
    gone.go()
    found = discover(
        Reported("a", target(there.address, over=True), target(gone.address, over=True)),
        address_map=AddressMap("localhost"),
    )

    until(found, {f"localhost:{there.port}"})


def test_what_was_found_and_what_went_wrong_is_counted(discover, allowlist, listener):
    server = listener()
    both = target(server.address), target("127.0.0.1:1", over=True)
    found = discover(Reported("a", *both), Reported("b", target(server.address, "b")))
    allowlist.note("a", "damaged", "words")
    until(found, {server.address})

    assert samples(found) == {
        ("stepwatch_discovery_targets", "a", "served"): 1,
        ("stepwatch_discovery_targets", "a", "silent"): 1,
        ("stepwatch_discovery_targets", "a", "pageless"): 0,
        ("stepwatch_discovery_targets", "b", "served"): 1,
        ("stepwatch_discovery_targets", "b", "silent"): 0,
        ("stepwatch_discovery_targets", "b", "pageless"): 0,
        ("stepwatch_discovery_errors_total", "a", "damaged"): 1,
        ("stepwatch_discovery_read_timestamp_seconds", "a"): 5.0,
        ("stepwatch_discovery_read_timestamp_seconds", "b"): 5.0,
    }


def test_two_thousand_servers_are_called_a_few_at_a_time_and_all_of_them(discover, listener):
    server = listener()
    many = [target(f"127.{n >> 8}.{n & 255}.1:{server.port}", over=True) for n in range(2, 2002)]
    found = discover(Reported("a", *many, target(server.address)))
    # Only the listener's own address takes calls: all else on loopback refuses.
    until(found, {server.address})
    found.turn()

    assert samples(found)["stepwatch_discovery_targets", "a", "silent"] == len(many)
    assert len(list(Path("/proc/self/fd").iterdir())) < 400
