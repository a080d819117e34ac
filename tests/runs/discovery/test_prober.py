"""Whether a server takes connections."""

from __future__ import annotations

import socket
import time

import pytest

from exporter.runs.discovery import targets as module
from exporter.runs.discovery.targets import Outcome, Probe, Prober
from tests.real.waiting import eventually


@pytest.fixture(name="prober")
def _calls():
    prober = Prober()
    yield prober
    prober.close()


def outcome(prober, count):
    """How the next so many probes end."""
    ended = {}

    def all_ended():
        ended.update({one.name: one.taken for one in prober.ended(0.1, time.monotonic())})
        return len(ended) >= count

    eventually(all_ended, seen=lambda: ended)
    return ended


def outcome_now(prober):
    return list(prober.ended(0.1, time.monotonic()))


def test_a_server_that_says_nothing_is_given_up_after_a_while(prober, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        time.sleep(0.1)
        prober.start("full", *address, "", time.monotonic())

        assert outcome(prober, 1) == {"full": False}
        for one in waiting:
            one.close()


def test_a_connection_to_a_free_port_that_reaches_itself_is_not_taken(prober):
    with socket.socket() as itself:
        itself.bind(("127.0.0.1", 0))
        itself.connect(itself.getsockname())

        probe = Probe("itself", itself, until=0.0, request=b"GET")

        assert not probe.goes_on()
        assert not probe.taken


def test_without_files_to_spare_nothing_is_known_of_a_server(prober, monkeypatch):
    def none_left(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(module.socket, "socket", none_left)
    prober.start("a", "127.0.0.1", 1, "", 0.0)

    assert prober.room == module.MOST_PROBES


def test_one_that_cannot_be_watched_is_closed_and_costs_no_other_its_probe(prober, listener, monkeypatch):
    def none_left(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(prober._selector, "register", none_left)
        prober.start("a", "127.0.0.1", 1, "", 0.0)
    there = listener()
    prober.start(there.address, "127.0.0.1", there.port, "", time.monotonic())

    assert prober.room == module.MOST_PROBES - 1
    assert outcome(prober, 1) == {there.address: True}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na_total 1", 200),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", 404),
        (b"SSH-2.0-OpenSSH_9.2\r\n", None),
        (b"nothing", None),
    ],
)
def test_a_page_that_is_asked_for_has_a_status_if_it_is_one(prober, answer, status):
    with socket.create_server(("127.0.0.1", 0)) as server:
        prober.start("10.0.0.7:1", *server.getsockname(), "/metrics", time.monotonic())
        assert list(prober.ended(5, time.monotonic())) == []
        client, _ = server.accept()
        request = client.recv(1000)
        client.sendall(answer)
        for part in range(3):
            assert outcome_now(prober) == [], part
            client.sendall(b"x" * 100_000)
        client.close()
        found = []
        while not found:
            found = outcome_now(prober)

        assert found == [Outcome("10.0.0.7:1", True, status)]
        assert request == b"GET /metrics HTTP/1.1\r\nHost: 10.0.0.7:1\r\nConnection: close\r\n\r\n"


def test_a_server_that_takes_a_connection_and_shows_no_page_is_there(prober):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        prober.start("a", *mute.getsockname(), "/metrics", 0.0)

        assert list(prober.ended(5, 0.0)) == []
        assert list(prober.ended(0.1, module.TIMEOUT_SECONDS + 1)) == [Outcome("a", True, None)]
