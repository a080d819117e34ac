from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from exporter.http_client import LIMIT, Reply
from exporter.runs.remote import web
from exporter.runs.remote.web import PollError, RefusedError
from tests.real import free_port
from tests.real.waiting import in_time
from tests.runs.speaking import Speaking, says

SECRET = {"Authorization": "Bearer s3cret"}


def ask(url: str, seconds: float = 5) -> Reply:
    return web.get(url, SECRET, seconds)


def problem(url: str, seconds: float = 5) -> str:
    with pytest.raises(PollError) as caught:
        ask(url, seconds)
    assert "s3cret" not in str(caught.value)
    return str(caught.value)


def test_an_answer_is_unpacked_and_its_type_is_reported() -> None:
    packed = gzip.compress(b"reward 1\n")
    speak = says(packed, Content_Encoding="gzip", Content_Type="Text/Plain; version=0.0.4")
    with Speaking(speak) as server:
        assert ask(server.url) == Reply(200, b"reward 1\n", "text/plain")

    assert server.asked[0].headers["Accept-Encoding"] == "gzip"


@pytest.mark.parametrize(
    ("speak", "expected"),
    [
        (says(b"no gzip", Content_Encoding="gzip"), "its gzip data is broken"),
        (says(gzip.compress(b"x" * 99)[:-9], Content_Encoding="gzip"), "its gzip data is cut off"),
        (says(b"x", Content_Encoding="br"), "unexpected Content-Encoding 'br'"),
        (says(b"x" * (LIMIT + 1)), "it is larger than 8 MiB"),
        (says(gzip.compress(b"x" * 4 * LIMIT, 1), Content_Encoding="gzip"), "it is larger than 8 MiB"),
        (says(b"too short", Content_Length="99"), "the connection was closed early"),
    ],
    ids=["broken", "cut", "other packing", "large", "bomb", "broken off"],
)
def test_an_answer_that_is_broken_or_too_large_is_refused(
    speak: Callable[[BaseHTTPRequestHandler], object], expected: str
) -> None:
    with Speaking(speak) as server:
        assert problem(server.url) == f"{server.url} gives no answer: {expected}."


def test_an_error_of_the_server_is_reported_with_its_number() -> None:
    with Speaking(says(b"the body is not shown", 503)) as server, pytest.raises(RefusedError) as caught:
        ask(server.url)

    assert str(caught.value) == f"{server.url} answers 503 Service Unavailable."
    assert caught.value.status == 503


def test_a_server_that_dribbles_is_given_up_at_the_deadline() -> None:
    over = threading.Event()

    def dribble(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not over.wait(0.05):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    with Speaking(dribble) as server:
        before = time.monotonic()
        text = problem(server.url, 0.5)
        took = time.monotonic() - before
        over.set()

    assert text == f"{server.url} gives no answer: incomplete after 0.5 s."
    assert in_time(took, 2)


def test_a_port_on_which_no_one_listens_is_named() -> None:
    port = free_port()
    assert problem(f"http://127.0.0.1:{port}/metrics") == (
        f"http://127.0.0.1:{port}/metrics gives no answer: Connection refused."
    )


def test_a_server_that_speaks_another_language_is_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_greet, args=(listening,), daemon=True).start()
        text = problem(f"http://127.0.0.1:{listening.getsockname()[1]}/")

    assert "gives no answer: SSH-2.0" in text


def _greet(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        connection.recv(1000)


def test_a_redirect_within_the_server_is_followed() -> None:
    def speak(handler: BaseHTTPRequestHandler) -> None:
        says(b"here")(handler) if handler.path == "/new" else says(b"", 302, Location="/new")(handler)

    with Speaking(speak) as server:
        assert ask(f"{server.url}/old").body == b"here"


def test_a_redirect_to_another_server_is_not_followed_and_carries_no_token() -> None:
    with (
        Speaking(says(b"stolen")) as other,
        Speaking(says(b"", 307, Location=f"{other.url}/x?t=1")) as server,
    ):
        text = problem(f"{server.url}/metrics")

    assert other.asked == []
    assert text == (
        f"{server.url}/metrics redirects to {other.url}/x, another server. "
        "Fix: set that address, if it is the right one."
    )


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("file:///etc/passwd", "file:///etc/passwd"),
        ("ftp://trainer/metrics", "ftp://trainer/metrics"),
        ("trainer:9092/metrics", "trainer://9092/metrics"),
        ("http:///metrics", "http:///metrics"),
        ("http://user:s3cret@trainer/metrics?key=s3cret", "http://trainer/metrics"),
    ],
)
def test_other_addresses_are_refused_and_their_secrets_are_not_shown(url: str, name: str) -> None:
    assert problem(url) == (
        f"{name} is not an address that can be polled. "
        "Expected http:// or https:// and a host, without a user name."
    )


@pytest.mark.parametrize("url", ["http://[::1", "http://trainer:port/x", "http://a b/", "http://trainer/\n"])
def test_an_address_that_cannot_be_read_is_not_a_crash(url: str) -> None:
    words = problem(url)
    assert "gives no answer" in words or "is not an address that can be polled" in words


def test_a_proxy_of_the_environment_is_asked_for_the_world_and_not_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Speaking(says(b"proxy")) as proxy, Speaking(says(b"direct")) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        far = ask("http://trainer.example/metrics")
        near = ask(server.url)

    assert (far.body, near.body) == (b"proxy", b"direct")
    assert [asked.path for asked in proxy.asked] == ["http://trainer.example/metrics"]
