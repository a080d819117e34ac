"""Whether a server takes connections."""

from __future__ import annotations

import socket
import time

import pytest

from exporter.runs.discovery import http_sd, prober
from exporter.runs.discovery.http_sd import CALL_SECONDS, Schedule
from exporter.runs.discovery.prober import Outcome, Prober
from tests.real.waiting import eventually


@pytest.fixture(name="calls")
def _calls():
    calls = Prober()
    yield calls
    calls.close()


def outcome(calls, count):
    """How the next so many calls end."""
    ended = {}

    def all_ended():
        ended.update({one.name: one.taken for one in calls.ended(0.1, time.monotonic())})
        return len(ended) >= count

    eventually(all_ended, seen=lambda: ended)
    return ended


def outcome_now(calls):
    return list(calls.ended(0.1, time.monotonic()))


def test_a_server_that_listens_takes_the_call_and_one_that_does_not_refuses(calls, listener):
    there, gone = listener(), listener()
    gone.go()
    for server in (there, gone):
        calls.call(server.address, "127.0.0.1", server.port, "", time.monotonic())

    assert outcome(calls, 2) == {there.address: True, gone.address: False}
    assert calls.room == prober.MOST


def test_a_server_that_says_nothing_is_given_up_after_a_while(calls, monkeypatch):
    monkeypatch.setattr(prober, "PATIENCE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        time.sleep(0.1)
        calls.call("full", *address, "", time.monotonic())

        assert outcome(calls, 1) == {"full": False}
        for one in waiting:
            one.close()


def test_a_call_to_a_free_port_that_reaches_itself_is_not_taken(calls):
    with socket.socket() as itself:
        itself.bind(("127.0.0.1", 0))
        itself.connect(itself.getsockname())

        assert not prober._is_taken(itself)


def test_an_address_that_cannot_be_reached_from_here_is_not_taken(calls):
    calls.call("broadcast", "255.255.255.255", 80, "", time.monotonic())

    assert outcome(calls, 1) == {"broadcast": False}


def test_without_files_to_spare_nothing_is_known_of_a_server(calls, monkeypatch):
    def none_left(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(prober.socket, "socket", none_left)
    calls.call("a", "127.0.0.1", 1, "", 0.0)

    assert calls.room == prober.MOST


def test_one_that_cannot_be_watched_is_let_go_and_costs_no_other_its_call(calls, listener, monkeypatch):
    def none_left(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(calls._selector, "register", none_left)
        calls.call("a", "127.0.0.1", 1, "", 0.0)
    there = listener()
    calls.call(there.address, "127.0.0.1", there.port, "", time.monotonic())

    assert calls.room == prober.MOST - 1
    assert outcome(calls, 1) == {there.address: True}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na_total 1", 200),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", 404),
        (b"SSH-2.0-OpenSSH_9.2\r\n", None),
        (b"nothing", None),
    ],
)
def test_a_page_that_is_asked_for_has_a_status_if_it_is_one(calls, answer, status):
    with socket.create_server(("127.0.0.1", 0)) as server:
        calls.call("10.0.0.7:1", *server.getsockname(), "/metrics", time.monotonic())
        assert list(calls.ended(5, time.monotonic())) == []
        client, _ = server.accept()
        request = client.recv(1000)
        client.sendall(answer)
        for part in range(3):
            assert outcome_now(calls) == [], part
            client.sendall(b"x" * 100_000)
        client.close()
        found = []
        while not found:
            found = outcome_now(calls)

        assert found == [Outcome("10.0.0.7:1", True, status)]
        assert request == b"GET /metrics HTTP/1.1\r\nHost: 10.0.0.7:1\r\nConnection: close\r\n\r\n"


def test_a_server_that_takes_a_call_and_shows_no_page_is_there(calls):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        calls.call("a", *mute.getsockname(), "/metrics", 0.0)

        assert list(calls.ended(5, 0.0)) == []
        assert list(calls.ended(0.1, prober.PATIENCE_SECONDS + 1)) == [Outcome("a", True, None)]


def test_new_ones_are_called_at_once_and_all_in_turn(monkeypatch):
    order = Schedule()
    order.meet({"a", "b", "c"}, 0.0)

    assert sorted(order.due(0.0, 2)) + list(order.due(0.0, 9)) == ["a", "b", "c"]
    assert list(order.due(1.0, 9)) == []
    order.meet({"a", "c", "d"}, 1.0)
    assert list(order.due(1.0, 9)) == ["d"]
    assert set(order.due(2 * CALL_SECONDS, 9)) == {"a", "c", "d"}


def test_when_one_leaves_the_next_is_still_the_one_that_has_waited_longest(monkeypatch):
    pauses = iter([1, 5, 2])
    monkeypatch.setattr(http_sd, "CALL_SECONDS", 1.0)
    monkeypatch.setattr(http_sd.random, "uniform", lambda *_: next(pauses))
    order = Schedule()
    order.meet({"a", "b", "c"}, 0.0)
    assert list(order.due(0.0, 3)) == ["a", "b", "c"]
    order.meet({"b", "c"}, 0.0)
    monkeypatch.setattr(http_sd.random, "uniform", lambda *_: 9)

    assert list(order.due(3.0, 9)) == ["c"]


def test_who_cannot_be_called_for_lack_of_room_is_next(monkeypatch):
    monkeypatch.setattr(http_sd, "CALL_SECONDS", 1.0)
    order = Schedule()
    order.meet({str(number) for number in range(100)}, 0.0)
    called = [address for now in range(10) for address in order.due(float(now), 10)]

    assert len(set(called)) == 100
