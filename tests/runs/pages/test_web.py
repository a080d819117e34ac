"""Requests to servers that are not ours: bounded, never elsewhere, and no message shows a secret of a URL."""

from __future__ import annotations

import gzip
import io
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


def dribble(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(100):
        time.sleep(0.05)
        handler.wfile.write(b"x")
        handler.wfile.flush()


BOMB, CUT = gzip.compress(b"x" * 4 * LIMIT, 1), gzip.compress(b"x" * 99)[:-9]
ANSWERS: dict[str, tuple[Callable[[BaseHTTPRequestHandler], object], str]] = {
    "broken": (says(b"no gzip", Content_Encoding="gzip"), "gives no answer: its gzip data is broken."),
    "cut": (says(CUT, Content_Encoding="gzip"), "gives no answer: its gzip data is cut off."),
    "packing": (says(b"x", Content_Encoding="br"), "gives no answer: unexpected Content-Encoding 'br'."),
    "large": (says(b"x" * (LIMIT + 1)), "gives no answer: it is larger than 8 MiB."),
    "bomb": (says(BOMB, Content_Encoding="gzip"), "gives no answer: it is larger than 8 MiB."),
    "early": (says(b"short", Content_Length="99"), "gives no answer: the connection was closed early."),
    "error": (says(b"the body is not shown", 503), "answers 503 Service Unavailable."),
    "slow": (dribble, "gives no answer: incomplete after 1 s."),
    "ssh": (lambda handler: handler.wfile.write(b"SSH-2.0-x\r\n"), "gives no answer: SSH-2.0-x."),
}


@pytest.mark.parametrize(("speak", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_is_broken_too_large_too_slow_or_an_error_is_refused(
    speak: Callable[[BaseHTTPRequestHandler], object], expected: str
) -> None:
    with Speaking(speak) as server:
        before = time.monotonic()
        assert problem(server.url, 1) == f"{server.url} {expected}"
        assert in_time(time.monotonic() - before, 3)


def test_a_redirect_to_another_server_is_not_followed_and_carries_no_token() -> None:
    elsewhere: list[str] = []

    def redirect(handler: BaseHTTPRequestHandler) -> None:
        says(b"", 307, Location=elsewhere[0])(handler)

    with Speaking(says(b"stolen")) as other, Speaking(redirect) as server:
        elsewhere.append(f"{other.url}/x?t=1")
        text = problem(f"{server.url}/metrics")
    assert other.asked == []
    assert text == (
        f"{server.url}/metrics redirects to {other.url}/x, another server. "
        "Fix: set that address, if it is the right one."
    )


NO_ADDRESSES = {
    "file:///etc/passwd": "file:///etc/passwd",
    "ftp://trainer/metrics": "ftp://trainer/metrics",
    "trainer:9092/metrics": "trainer://9092/metrics",
    "http:///metrics": "http:///metrics",
    "http://user:s3cret@trainer/metrics?key=s3cret": "http://trainer/metrics",
    **dict.fromkeys(("http://[::1", "http://trainer:port/x", "http://a b/", "http://trainer/\n"), None),
}


def test_what_is_no_address_of_a_page_is_refused_in_words() -> None:
    refused = "is not an address that can be polled"
    for url, name in NO_ADDRESSES.items():
        words = problem(url)
        assert refused in words if name else (refused in words or "gives no answer" in words)
        if name:
            assert words == f"{name} {refused}. Expected http:// or https:// and a host, without a user name."
    closed = f"http://127.0.0.1:{free_port()}/metrics"
    assert problem(closed) == f"{closed} gives no answer: Connection refused."


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
SECRETS = {
    f"/bot{TELEGRAM}/metrics": TELEGRAM,
    f"/x/{SLACK}/metrics": SLACK,
    f"/services/T0/{CHAT}": CHAT,
    "/metrics#apiKey=hunter2": "hunter2",
    "/metrics?sig=hunter2": "hunter2",
}
"""What follows host and port, and what of it no one may read."""
PLAIN = (
    "http://trainer-7f9c5d8b6-x2k4jaaaaaaaa1/metrics",
    "https://[fd00::7]:9092/metrics",
    "http://10.0.0.7:9092/api/v1/namespaces/rl/pods/ppo-0/proxy/metrics",
)
ODD = ("http://127.0.0.1:1/a b?sig=hunter2", "http://me:hunter2/metrics", "nonsense?sig=hunter2")


def test_no_name_of_a_target_no_error_of_a_poll_and_no_inspection_repeats_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("")

    def echo(handler: BaseHTTPRequestHandler) -> None:
        if TELEGRAM in handler.path:
            handler.wfile.write(f"ECHO {handler.path}\r\n".encode())
        else:
            says(b"", 404)(handler)

    with Speaking(echo) as server:
        for path, secret in SECRETS.items():
            url = server.url + path
            for name in (Page(url).name, Mlflow(url, experiments=["a"]).name):
                assert name.startswith(f"{server.url}/")
                assert secret not in name
            words = problem(url)
            assert ("gives no answer: ECHO " if TELEGRAM in path else "answers 404 Not Found") in words
            assert main(["inspect", "--config", str(tmp_path / "config.yaml"), url]) == 1
            said = capsys.readouterr().out
            assert f"No run in {server.url}/" in said
            assert secret not in words + said
    assert not any("hunter2" in problem(url) for url in (*ODD, "http://me:hunter2@127.0.0.1:1/metrics"))
    assert all(masked_url(url) == url for url in PLAIN)


@pytest.mark.parametrize("url", ["http://me:hunter2@h/", "http://h/?api_key=hunter2"])
def test_no_usage_error_repeats_one(url: str) -> None:
    for text in (f'[{{"ulr": "{url}"}}]', f'[{{"url": "{url}"', f'{{"url": "{url}"}}'):
        with pytest.raises(ArgumentTypeError) as caught:
            cli.pages(text)
        with pytest.raises(SystemExit), redirect_stderr(io.StringIO()) as said:
            cli.command_line(["--path", ".", "--pages", text]).options()
        assert "--pages" in said.getvalue()
        assert "hunter2" not in str(caught.value) + said.getvalue()
