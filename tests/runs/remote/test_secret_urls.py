"""Secrets in the URLs of pages and servers: in no name, message, log line, label or answer."""

from __future__ import annotations

import io
from argparse import ArgumentTypeError
from contextlib import redirect_stderr
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from exporter.runs import cli
from exporter.runs.cli import command_line
from exporter.runs.remote import web
from exporter.runs.remote.mlflow import Mlflow
from exporter.runs.remote.page import Page
from exporter.runs.remote.web import PollError
from exporter.secret_shapes import masked_url
from stepwatch.__main__ import main
from tests.runs.speaking import Speaking, says

# In two parts, so that no scanner takes this file for a leak.
TELEGRAM = "123456789" + ":ABCdefGHIjklMNOpqrSTUvwxYZabcdefghi"
SLACK = "xoxb" + "-abcdefghijkl-mnopqrstuvwx-ABCDEFGHIJKLmnopqrstuvwx"
CHAT = "hunter2hunter2hunter2"

SECRETS = {
    "a Telegram address": (f"/bot{TELEGRAM}/metrics", TELEGRAM),
    "a Slack token of letters": (f"/x/{SLACK}/metrics", SLACK),
    "a chat service's path": (f"/services/T0/{CHAT}", CHAT),
    "a key behind #": ("/metrics#apiKey=hunter2", "hunter2"),
    "a parameter": ("/metrics?sig=hunter2", "hunter2"),
}
"""What follows host and port, and what of it no one may read."""


def secret_urls(host: str) -> list[tuple[str, str]]:
    paths = [(f"http://{host}{path}", secret) for path, secret in SECRETS.values()]
    return [*paths, (f"http://me:hunter2@{host}/metrics", "hunter2")]


@pytest.mark.parametrize(("url", "secret"), secret_urls("trainer:9092"))
def test_no_name_of_a_polled_target_holds_one(url: str, secret: str) -> None:
    for name in (Page(url).name, Mlflow(url, experiments=["a"]).name):
        assert secret not in name
        assert name.startswith("http://trainer:9092/")


@pytest.mark.parametrize(
    "url",
    [
        "http://trainer-7f9c5d8b6-x2k4jaaaaaaaa1/metrics",
        "http://10.0.0.7:9092/api/v1/namespaces/rl/pods/ppo-0/proxy/metrics",
        "https://[fd00::7]:9092/metrics",
        "http://mlflow:5000",
    ],
)
def test_a_url_without_one_is_shown_as_it_is(url: str) -> None:
    assert masked_url(url) == url


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        *secret_urls("127.0.0.1:1"),
        ("http://127.0.0.1:1/a b?sig=hunter2", "hunter2"),
        ("http://me:hunter2/metrics", "hunter2"),  # a login without its host
        ("nonsense?sig=hunter2", "hunter2"),
    ],
)
def test_no_error_of_a_poll_repeats_one(url: str, secret: str) -> None:
    with pytest.raises(PollError) as caught:
        web.get(url, {}, 5)

    assert secret not in str(caught.value)


def test_nor_does_one_that_repeats_what_the_server_says() -> None:
    def repeat(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(500, f"no page {handler.path}")
        handler.end_headers()

    with Speaking(repeat) as server, pytest.raises(PollError) as caught:
        web.get(f"{server.url}/bot{TELEGRAM}/metrics", {}, 5)

    assert "/(secret)/metrics answers 500 Internal Server Error." in str(caught.value)


@pytest.mark.parametrize("url", ["http://me:hunter2@h/", "http://h/?api_key=hunter2"])
def test_no_usage_error_repeats_one(url: str) -> None:
    for text in (f'[{{"ulr": "{url}"}}]', f'[{{"url": "{url}"', f'{{"url": "{url}"}}'):
        with pytest.raises(ArgumentTypeError) as caught:
            cli.pages(text)
        assert "hunter2" not in str(caught.value)
        with pytest.raises(SystemExit), redirect_stderr(io.StringIO()) as said:
            command_line(["--path", ".", "--pages", text]).options()
        assert "--pages" in said.getvalue()
        assert "hunter2" not in said.getvalue()


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize(("path", "secret"), SECRETS.values(), ids=SECRETS)
def test_inspect_repeats_none(
    path: str, secret: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("")
    with Speaking(says(b"", status)) as server:
        code = main(["inspect", "--config", str(tmp_path / "config.yaml"), server.url + path])

    said = capsys.readouterr().out
    assert code == 1
    assert f"No run in {server.url}/" in said
    assert secret not in said
