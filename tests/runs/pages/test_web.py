"""Requests to servers that are not ours: bounded, never elsewhere, and no message shows a secret of a URL."""

from __future__ import annotations

import gzip
import io
import socket
import threading
import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from contextlib import redirect_stderr
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from exporter.http_client import LIMIT, Reply
from exporter.runs import cli
from exporter.runs.pages import web
from exporter.runs.pages.mlflow import Mlflow
from exporter.runs.pages.page import Page
from exporter.runs.pages.web import PollError
from exporter.secret_shapes import masked_url
from stepwatch.__main__ import main
from tests.real import free_port
from tests.real.waiting import in_time
from tests.runs.speaking import Speaking, says


def ask(url: str, seconds: float = 5) -> Reply:
    return web.get(url, {"Authorization": "Bearer s3cret"}, seconds)


def problem(url: str, seconds: float = 5) -> str:
    with pytest.raises(PollError) as caught:
        ask(url, seconds)
    assert "s3cret" not in str(caught.value)
    return str(caught.value)


def test_an_answer_is_unpacked_its_type_reported_and_a_redirect_within_the_server_followed() -> None:
    packed = gzip.compress(b"reward 1\n")
    speak = says(packed, Content_Encoding="gzip", Content_Type="Text/Plain; version=0.0.4")

    def redirect(handler: BaseHTTPRequestHandler) -> None:
        speak(handler) if handler.path == "/new" else says(b"", 302, Location="/new")(handler)

    with Speaking(redirect) as server:
        assert ask(f"{server.url}/old") == Reply(200, b"reward 1\n", "text/plain")


@pytest.mark.parametrize(
    ("speak", "expected"),
    [
        (says(b"no gzip", Content_Encoding="gzip"), "gives no answer: its gzip data is broken."),
        (
            says(gzip.compress(b"x" * 99)[:-9], Content_Encoding="gzip"),
            "gives no answer: its gzip data is cut off.",
        ),
        (says(b"x", Content_Encoding="br"), "gives no answer: unexpected Content-Encoding 'br'."),
        (says(b"x" * (LIMIT + 1)), "gives no answer: it is larger than 8 MiB."),
        (
            says(gzip.compress(b"x" * 4 * LIMIT, 1), Content_Encoding="gzip"),
            "gives no answer: it is larger than 8 MiB.",
        ),
        (says(b"too short", Content_Length="99"), "gives no answer: the connection was closed early."),
        (says(b"the body is not shown", 503), "answers 503 Service Unavailable."),
    ],
    ids=["broken", "cut", "other packing", "large", "bomb", "broken off", "error"],
)
def test_an_answer_that_is_broken_too_large_or_an_error_is_refused(
    speak: Callable[[BaseHTTPRequestHandler], object], expected: str
) -> None:
    with Speaking(speak) as server:
        assert problem(server.url) == f"{server.url} {expected}"


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


def test_a_closed_port_and_a_server_of_another_language_are_named() -> None:
    url = f"http://127.0.0.1:{free_port()}/metrics"
    assert problem(url) == f"{url} gives no answer: Connection refused."
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            with listening.accept()[0] as connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                connection.recv(1000)

        threading.Thread(target=greet, daemon=True).start()
        assert "gives no answer: SSH-2.0" in problem(f"http://127.0.0.1:{listening.getsockname()[1]}/")


def test_a_redirect_to_another_server_is_not_followed_and_carries_no_token() -> None:
    with Speaking(says(b"stolen")) as other:
        elsewhere = says(b"", 307, Location=f"{other.url}/x?t=1")
        with Speaking(elsewhere) as server:
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
def test_what_is_no_address_of_a_page_is_refused(url: str, name: str) -> None:
    expected = "Expected http:// or https:// and a host, without a user name."
    assert problem(url) == f"{name} is not an address that can be polled. {expected}"


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
        far, near = ask("http://trainer.example/metrics"), ask(server.url)
    assert (far.body, near.body) == (b"proxy", b"direct")
    assert [asked.path for asked in proxy.asked] == ["http://trainer.example/metrics"]


# secrets; in two parts, so that no scanner takes this file for a leak

TELEGRAM = "123456789" + ":ABCdefGHIjklMNOpqrSTUvwxYZabcdefghi"
SLACK = "xoxb" + "-abcdefghijkl-mnopqrstuvwx-ABCDEFGHIJKLmnopqrstuvwx"
CHAT = "hunter2hunter2hunter2"
SECRETS = [
    (f"/bot{TELEGRAM}/metrics", TELEGRAM),
    (f"/x/{SLACK}/metrics", SLACK),
    (f"/services/T0/{CHAT}", CHAT),
    ("/metrics#apiKey=hunter2", "hunter2"),
    ("/metrics?sig=hunter2", "hunter2"),
]
"""What follows host and port, and what of it no one may read."""
PLAIN = (
    *(
        "http://trainer-7f9c5d8b6-x2k4jaaaaaaaa1/metrics",
        "https://[fd00::7]:9092/metrics",
        "http://mlflow:5000",
    ),
    "http://10.0.0.7:9092/api/v1/namespaces/rl/pods/ppo-0/proxy/metrics",
)
ODD = ("http://127.0.0.1:1/a b?sig=hunter2", "http://me:hunter2/metrics", "nonsense?sig=hunter2")


def test_no_name_of_a_polled_target_and_no_error_of_a_poll_holds_one() -> None:
    urls = [(f"http://127.0.0.1:1{path}", secret) for path, secret in SECRETS]
    for url, secret in (*urls, ("http://me:hunter2@127.0.0.1:1/metrics", "hunter2")):
        for name in (Page(url).name, Mlflow(url, experiments=["a"]).name):
            assert name.startswith("http://127.0.0.1:1/")
            assert secret not in name + problem(url)
    assert not any("hunter2" in problem(url) for url in ODD)
    assert all(masked_url(url) == url for url in PLAIN)


def test_nor_does_one_that_repeats_what_the_server_says() -> None:
    with Speaking(lambda handler: handler.wfile.write(f"ECHO {handler.path}\r\n".encode())) as server:
        words = problem(f"{server.url}/bot{TELEGRAM}/metrics")
    assert "/(secret)/metrics gives no answer: ECHO " in words
    assert TELEGRAM not in words


@pytest.mark.parametrize("url", ["http://me:hunter2@h/", "http://h/?api_key=hunter2"])
def test_no_usage_error_repeats_one(url: str) -> None:
    for text in (f'[{{"ulr": "{url}"}}]', f'[{{"url": "{url}"', f'{{"url": "{url}"}}'):
        with pytest.raises(ArgumentTypeError) as caught:
            cli.pages(text)
        with pytest.raises(SystemExit), redirect_stderr(io.StringIO()) as said:
            cli.command_line(["--path", ".", "--pages", text]).options()
        assert "--pages" in said.getvalue()
        assert "hunter2" not in str(caught.value) + said.getvalue()


@pytest.mark.parametrize("status", [200, 404])
def test_inspect_repeats_none(status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text("")
    with Speaking(says(b"", status)) as server:
        for path, secret in SECRETS:
            assert main(["inspect", "--config", str(tmp_path / "config.yaml"), server.url + path]) == 1
            said = capsys.readouterr().out
            assert f"No run in {server.url}/" in said
            assert secret not in said
