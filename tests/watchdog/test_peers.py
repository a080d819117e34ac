"""What the watchdog makes of what another machine's Alertmanager says, or does not say."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.watchdog.client import Client
from exporter.watchdog.finding import ALERTMANAGER, EXPIRY_SECONDS, Findings
from exporter.watchdog.servers import Peer
from tests.real import free_port
from tests.real.answering import Answering

SENT, LATER, END = "2026-02-01T03:04:05.678Z", "2026-02-01T03:04:50.123456789Z", "2026-02-01T03:07:05.678Z"


def watchdog(sent: str = SENT, end: str = END) -> str:
    return json.dumps([{"labels": {"alertname": "Watchdog"}, "updatedAt": sent, "endsAt": end}])


class Clock:
    """The steady clock, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1e5
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@contextmanager
def raw(answer: bytes) -> Iterator[str]:
    """A server that sends these bytes, whatever it is asked, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def found_at(url: str, *, seconds: float = 10.0) -> str:
    """What a first look at an address says, of a peer that has no time."""
    peer = Peer("gpu-2", Client(url, seconds=seconds), 0)
    peer.look()
    (finding,) = peer.findings()
    assert (finding.fault, finding.name) == ("peer_down", "gpu-2")
    assert finding.labels == {"alertname": "PeerDown", "peer": "gpu-2"}
    assert url in finding.description
    return finding.description


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, "", "status 401: it requires a login; set username and password_file"),
        (403, "", "status 403: it refuses this host name; set links.alertmanager there"),
        (302, "", "status 302, a redirect: set the address that it redirects to"),
        (502, "", "status 502: the Alertmanager behind that address is down"),
        (404, "", "status 404: not an Alertmanager"),
        (200, "<html>Sign in</html>", "not an Alertmanager: the response is not a list of alerts"),
        (200, '[{"a": 1}]', "not an Alertmanager"),
        (200, "{}", "not an Alertmanager"),
        (200, "[]", "its Alertmanager has no Watchdog alert: its Prometheus is down or cannot reach it"),
        (200, watchdog()[:-9], "not an Alertmanager"),
        (200, watchdog(end="soon"), "not an Alertmanager"),
    ],
)
def test_each_answer_that_is_not_that_of_a_peer_that_works_says_what_it_is(
    status: int, body: str, says: str
) -> None:
    with Answering(status, body) as server:
        assert says in found_at(server.url)


def test_no_answer_and_half_an_answer_say_so() -> None:
    said = found_at(f"http://127.0.0.1:{free_port()}")
    assert "not healthy since the watchdog started: no response (Connection refused)" in said
    assert "First: run `make status` there" in said
    with raw(b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n[]") as url:
        assert "no response (The response ends too early)" in found_at(url)
    with raw(b"") as url:
        assert "no response (The response is not HTTP)" in found_at(url)
    with Answering(body=watchdog(), delay=30) as server:
        assert "no response (timed out)" in found_at(server.url, seconds=0.2)


def test_it_is_well_while_its_watchdog_is_sent_again_whatever_its_clock_says(clock: Clock) -> None:
    with Answering(body=watchdog()) as server:
        peer = Peer("gpu-2", Client(server.url), 120)
        for number in range(40):  # Prometheus sends it again every 45 s
            if number % 5 == 0:
                server.body = watchdog(f"1999-12-31T23:{number:02}:00Z", f"1999-12-31T23:{number + 3:02}:00Z")
            peer.look()
            assert (peer.problem, peer.down, list(peer.findings())) == (None, False, [])
            clock.now += 10


def test_a_watchdog_that_stays_as_it_was_is_down_after_its_patience_and_well_at_once(clock: Clock) -> None:
    with Answering(body=watchdog()) as server:
        peer = Peer("gpu-2", Client(server.url), 120)
        peer.look()
        clock.now += 119
        peer.look()
        assert (peer.down, peer.problem) == (False, None)
        clock.now += 2
        peer.look()
        (finding,) = peer.findings()
        assert "its Alertmanager answers, but its Prometheus no longer sends alerts; for 121 s" in (
            finding.description
        )
        server.body = watchdog(LATER)
        peer.look()
        assert (peer.down, peer.problem, peer.silence) == (False, None, 0)


def test_a_peer_that_evaluates_its_rules_seldom_says_so_itself(clock: Clock) -> None:
    with Answering(body=watchdog(end="2026-02-01T03:12:05.678Z")) as server:  # it counts for 8 min
        peer = Peer("gpu-2", Client(server.url), 120)
        peer.look()
        clock.now += 239
        peer.look()
        assert not peer.down
        clock.now += 2
        peer.look()
        assert peer.down


def test_silence_counts_from_the_last_good_answer_and_a_watchdog_that_slept_looks_first(clock: Clock) -> None:
    with Answering(body=watchdog()) as server:
        peer = Peer("gpu-2", Client(server.url), 120)
        peer.look()
        server.status = 502
        clock.now += 100
        peer.look()
        assert (peer.down, "502" in str(peer.problem)) == (False, True)
        clock.now += 21
        peer.look()
        assert peer.down
        server.status, server.body = 200, watchdog(LATER)
        clock.now += 1000
        peer.look()
        assert not peer.down


def test_the_alert_names_the_peer_and_outlives_a_restart_of_the_watchdog() -> None:
    peer = Peer(ALERTMANAGER, Client(f"http://127.0.0.1:{free_port()}"), 0)
    peer.look()
    findings = Findings("critical", {"runbook_url": "r"}, "g", labels={"cluster": "b"}, expiry=300)
    findings.update(peer.findings(), 1000.0)
    (alert,) = findings.alerts(1000.0)
    assert alert["labels"] == {
        "cluster": "b",
        "alertname": "PeerDown",
        "severity": "critical",
        "topic": "stack",
        "peer": ALERTMANAGER,
    }
    assert alert["annotations"]["summary"] == "Alerting of another machine is down"
    assert alert["endsAt"] == "1970-01-01T00:21:40+00:00"
    assert EXPIRY_SECONDS < 300


def test_a_login_is_sent_as_the_user_that_is_named(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret\n")
    assert Client("http://127.0.0.1:1", str(secret), user="ops")._authorization() == [
        "Authorization: Basic b3BzOnMzY3JldA=="
    ]


def test_a_password_that_is_not_text_is_a_finding_and_not_silence(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"\xff\xfe")
    peer = Peer("gpu-2", Client("http://127.0.0.1:1", str(tmp_path / "password"), user="me"), 0)

    peer.look()

    assert peer.down
    assert len(list(peer.findings())) == 1


def test_a_time_that_is_not_text_is_not_an_answer_of_an_alertmanager() -> None:
    with Answering(body='[{"updatedAt": null, "endsAt": 3}]') as server:
        assert "not an Alertmanager" in found_at(server.url)
