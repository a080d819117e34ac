"""What an agent's Prometheus hears of what the hub answers, and what people read of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from exporter.credentials import authorization
from exporter.http.message import Answer, Request
from exporter.runs.sender import Sender
from tests.real import free_port
from tests.real.listening import Listening

OWN, PASSWORD = "the-own-password", "hub-password-1234"
HEAD = {
    "content-type": "application/x-protobuf",
    "content-encoding": "snappy",
    "x-prometheus-remote-write-version": "0.1.0",
    "authorization": authorization(OWN),
    "cookie": "local",
}


class Hub(Listening):
    """Answers each request with the next one of some answers, the last one again; it says the time."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.left = list(answers)
        super().__init__(self._handler())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        this = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                this.connections += 1
                super().setup()

            def do_GET(self) -> None:
                self.send_response(405)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                this.received.append((self.path, dict(self.headers), body))
                status, words = this.left.pop(0) if len(this.left) > 1 else this.left[0]
                answer = words.format(**self.headers).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Say nothing."""

        return Handler


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "own").write_text(f"{OWN}\n")
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    return {"own": str(tmp_path / "own"), "password_file": str(tmp_path / "password")}


Made = Callable[..., Sender]


@pytest.fixture(name="sender")
def _sender(files: dict[str, str]) -> Iterator[Made]:
    """Makes senders to a URL, with more settings."""
    made: list[Sender] = []

    def make(url: str, **hub: Any) -> Sender:
        settings = {"url": url, "username": "node-7", "password_file": files["password_file"], **hub}
        made.append(Sender(settings, Path(files["own"])))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def written(relay: Sender, **headers: str) -> Answer:
    """What Prometheus hears of a write, with more headers."""
    head = {**HEAD, **headers}
    found = relay.routes()["/hub/write"]["POST"](Request("POST", "/hub/write", "", head, b"\x00samples"))
    return found if isinstance(found, Answer) else found()


def report(relay: Sender) -> dict[str, Any]:
    """What `make up` and `make status` read."""
    answer = relay.routes()["/api/v1/findings"]["GET"](Request("GET", "/api/v1/findings"))
    assert isinstance(answer, Answer)
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_what_is_written_is_forwarded_unchanged_with_the_login_of_the_hub(
    sender: Made, files: dict[str, str]
) -> None:
    with Hub((204, "")) as hub:
        relay = sender(f"{hub.url}/push?x=1", headers={"X-Scope-OrgID": "rl"})
        assert [written(relay).code, written(relay).code] == ["200", "200"]
        (path, headers, body), _ = hub.received
        assert (path, body) == ("/push?x=1", b"\x00samples")
        expected = {"Content-Type": HEAD["content-type"], "Content-Encoding": "snappy", "X-Scope-OrgID": "rl"}
        given = {name.title(): value for name, value in headers.items()}
        assert {name.title(): value for name, value in expected.items()}.items() <= given.items()
        assert given["X-Prometheus-Remote-Write-Version"] == "0.1.0"
        assert given["Authorization"] == authorization(PASSWORD, "node-7")
        assert "Cookie" not in given
        assert hub.connections == 1, "it stays open"
        Path(files["password_file"]).write_text("a-token")
        token = sender(hub.url, token_file=files["password_file"])
        assert written(token).code == "200"
        assert hub.received[-1][1]["Authorization"] == "Bearer a-token"
        found = report(relay)
        assert (found["hub"], found["faults"]) == (hub.url, [])
        assert found["taken"] > 0


@pytest.mark.parametrize(
    ("status", "words", "heard", "fix"),
    [
        (401, "Unauthorized {Authorization}", "503", "`make agent NODE=name RENEW=1`"),
        (403, "no", "503", "let this login write"),
        (404, "no such page", "503", "hub.url must end in the path"),
        (301, "moved", "503", "the address to which it redirects"),
        (429, "slow down", "503", "`make status` on the hub"),
        (500, "broken", "503", "`make status` on the hub"),
        (400, "snappy: corrupt input {Authorization}", "400", "read the hub's log"),
        (413, "too large", "413", "read the hub's log"),
        # The clock is right: what the hub does not take now it never takes.
        (400, "out of bounds", "400", "read the hub's log"),
    ],
)
def test_only_what_can_never_be_taken_is_given_up(
    sender: Made, caplog: pytest.LogCaptureFixture, *, status: int, words: str, heard: str, fix: str
) -> None:
    with Hub((status, words), (200, "")) as hub:
        relay = sender(hub.url)
        answer = written(relay)
        (sentence,) = report(relay)["faults"]
        assert answer.code == heard
        assert answer.body.decode() == f"{sentence}\n"
        assert fix in sentence.partition(" Fix: ")[2]
        assert f"{status} " in sentence
        assert ("which are lost" in sentence) == (heard != "503")
        assert "kept for 12h" in sentence or heard != "503"
        assert relay.faults == (sentence,)
        secrets = (PASSWORD, authorization(PASSWORD, "node-7").split()[1])
        assert not [each for each in secrets if each in sentence + caplog.text]
        assert written(relay).code == "200"
        assert relay.faults == ()


def test_a_hub_that_cannot_be_reached_is_said_with_the_fix(sender: Made) -> None:
    with Hub((200, "")) as hub:
        port = hub.url.rpartition(":")[2]
        cases = [
            (f"http://127.0.0.1:{free_port()}", {}, "Connection refused", "ports.agents"),
            (f"https://127.0.0.1:{port}", {}, "does not speak TLS", "write http:// for a tunnel"),
            ("http://no-such-name.invalid", {}, "does not resolve", "the name in hub.url must resolve here"),
            (hub.url, {"password_file": "/no/file"}, "/no/file cannot be read", "correct that file"),
            (hub.url, {"token_file": "/dev/null"}, "hub.token_file /dev/null is empty", "correct that file"),
            (f"https://127.0.0.1:{port}", {"ca_file": "/no/ca"}, "hub.ca_file /no/ca", "correct that file"),
        ]
        for url, more, says, fix in cases:
            relay = sender(url, **more)
            assert written(relay).code == "503"
            (sentence,) = relay.faults
            assert says in sentence
            assert fix in sentence.partition(" Fix: ")[2]


def test_only_our_own_prometheus_may_write(sender: Made) -> None:
    with Hub((200, "")) as hub:
        relay = sender(hub.url)
        assert written(relay, authorization=authorization("another")).code == "503"
        assert written(relay, **{"content-type": "text/plain"}).code == "415"
        assert written(relay, origin="http://127.0.0.1:9410").code == "415"
        assert written(relay, **{"sec-fetch-site": "same-origin"}).code == "415"
        assert hub.received == []
        assert written(relay).code == "200"


def test_a_connection_that_the_hub_has_closed_costs_nothing(sender: Made) -> None:
    with Hub((200, "")) as hub:
        relay = sender(hub.url)
        assert written(relay).code == "200"
        for connection in relay._idle:
            connection.sock.shutdown(2)
        assert written(relay).code == "200"
        assert hub.connections == 2


def test_a_prometheus_that_sends_nothing_is_a_fault(sender: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = sender("http://127.0.0.1:1")
    assert relay.faults == ()
    monkeypatch.setattr(relay, "_asked", relay._asked - 61)
    assert relay.faults == ("The agent's Prometheus has sent nothing for 1m. Fix: read its log.",)
