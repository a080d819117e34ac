"""The HTTP side: what is answered, by whom, and what a broken client does to it."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.exposition import CONTENT_TYPE
from exporter.runs.server import Server
from exporter.runs.watch import Settings, Watch
from tests.exporter.lines import measured, verl_json
from tests.exporter.scrape import Scrape


@contextmanager
def serving(metrics: Callable[[], bytes]) -> Iterator[str]:
    """A server on a free port; gives its address."""
    server = Server(("127.0.0.1", 0), metrics)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def get(url: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def test_metrics_are_served_as_exposition_text() -> None:
    with serving(lambda: b"rl_step 1\n") as url:
        assert get(f"{url}/metrics") == (200, CONTENT_TYPE, b"rl_step 1\n")
        assert get(f"{url}/metrics?collect=all")[2] == b"rl_step 1\n"


def test_health_and_index_answer() -> None:
    with serving(lambda: b"") as url:
        assert get(f"{url}/-/healthy") == (200, "text/plain", b"ok\n")
        assert b"/metrics" in get(f"{url}/")[2]


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/../etc/passwd", "/%00"])
def test_other_pages_are_not_found_and_the_answer_says_which_there_are(path: str) -> None:
    with serving(lambda: b"") as url:
        status, _, body = get(url + path)

    assert status == 404
    assert b"/metrics" in body


def test_one_connection_serves_many_scrapes() -> None:
    with serving(lambda: b"x 1\n") as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            for _ in range(3):
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = b""
                while not answer.endswith(b"x 1\n"):
                    answer += client.recv(4096)
                assert answer.startswith(b"HTTP/1.1 200")


def test_a_client_that_hangs_holds_nobody_up() -> None:
    with serving(lambda: b"x 1\n") as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as silent:
            silent.sendall(b"GET /metr")
            assert get(f"{url}/metrics")[0] == 200


def test_a_client_that_goes_away_is_no_news(capfd: pytest.CaptureFixture[str]) -> None:
    asked, answer = threading.Event(), threading.Event()

    def slow() -> bytes:
        asked.set()
        answer.wait(10)
        return b"x" * 5_000_000

    with serving(slow) as url:
        host, port = url.removeprefix("http://").split(":")
        client = socket.create_connection((host, int(port)), timeout=10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        asked.wait(10)
        client.close()
        answer.set()
        assert get(f"{url}/-/healthy")[0] == 200

    assert capfd.readouterr() == ("", "")


def test_a_port_in_use_is_an_os_error() -> None:
    with serving(lambda: b"") as url, pytest.raises(OSError, match="in use"):
        Server(("127.0.0.1", int(url.rpartition(":")[2])), lambda: b"")


def test_metrics_answer_while_a_large_log_is_read_for_the_first_time(folder: Path) -> None:
    line = "".join(
        verl_json(step, {**measured(step), **{f"x/{key}": step / 7 for key in range(60)}})
        for step in range(400)
    )
    (folder / "a.jsonl").write_text(line * (50_000_000 // len(line) + 1))
    watch, answers = Watch(Settings((str(folder),))), list[Scrape]()
    reading = threading.Thread(target=lambda: [None for _ in iter(watch.look, False)])
    with serving(watch.metrics) as url:
        reading.start()
        while reading.is_alive():
            status, _, body = get(f"{url}/metrics")
            assert status == 200
            answers.append(Scrape(body))
        last = Scrape(get(f"{url}/metrics")[2])

    assert (
        len([answer for answer in answers if (answer.value("stepwatch_bytes_read_total") or 0) < 50_000_000])
        >= 3
    )
    assert last.value("rl_step", run="a") == 399
