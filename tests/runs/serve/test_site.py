"""The HTTP side: what is answered, by whom, and what a broken client does to it."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.http.exposition import CONTENT_TYPE
from exporter.http.message import Answer, Request
from exporter.http.routes import Routes
from exporter.http.server import Server
from exporter.runs.app import MOST_BODY
from exporter.runs.cli import Settings
from exporter.runs.collector import Collector
from exporter.runs.serve import endpoints
from exporter.runs.serve.endpoints import MOST_BYTES, NO_NOTE, NOTE_CHARACTERS, UnknownRunError
from tests.runs.lines import measured, verl_json
from tests.runs.scrape import Scrape


def nobody(_run: str, _note: str) -> None:
    raise AssertionError("nobody asked for a mark")


@contextmanager
def serving(metrics: Callable[[], bytes], mark: Callable[[str, str], None] = nobody) -> Iterator[str]:
    """A server on a free port; gives its address."""
    server = Server(
        ("127.0.0.1", 0), Routes(endpoints.table(metrics, mark, lambda: (True, "ok\n"))), MOST_BODY
    )
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


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


def test_an_exporter_that_is_not_well_answers_503_and_says_why() -> None:
    table = endpoints.table(lambda: b"", nobody, lambda: (False, "the logs were not checked for 65 s\n"))
    answer = Routes(table)(Request("GET", "/-/healthy"))

    assert isinstance(answer, Answer)
    assert answer.status == "503 Service Unavailable"
    assert answer.body == b"the logs were not checked for 65 s\n"


def post(url: str, body: bytes, kind: str = "application/json") -> tuple[int, str]:
    request = urllib.request.Request(url, body, {"Content-Type": kind}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ({"run": "ppo/gsm8k", "note": "new data"}, "new data"),
        ({"run": "ppo/gsm8k"}, NO_NOTE),
        ({"run": "ppo/gsm8k", "note": None}, NO_NOTE),
        ({"run": "ppo/gsm8k", "note": "模" * NOTE_CHARACTERS}, "模" * NOTE_CHARACTERS),
    ],
)
def test_a_mark_is_taken(body: dict[str, str], note: str) -> None:
    taken: list[tuple[str, str]] = []
    with serving(lambda: b"", lambda *mark: taken.append(mark)) as url:
        assert post(f"{url}/-/mark", json.dumps(body).encode(), "application/json; charset=utf-8")[0] == 200

    assert taken == [("ppo/gsm8k", note)]


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        (b'{"run": "a"}', "text/plain", 415, "application/json"),
        (b'{"run": "a"}', "application/x-www-form-urlencoded", 415, "application/json"),
        (b'{"run": "a"}', "", 415, "application/json"),
        (b"{", "application/json", 400, "Invalid mark"),
        (b"\xff", "application/json", 400, "Invalid mark"),
        (b"[" * 9000, "application/json", 400, "Invalid mark"),
        (b'["a"]', "application/json", 400, "Invalid mark"),
        (b'{"note": "x"}', "application/json", 400, "Invalid mark"),
        (b'{"run": 5}', "application/json", 400, "Invalid mark"),
        (b'{"run": "a", "step": 5}', "application/json", 400, "Invalid mark"),
        (b'{"run": "a", "note": 0}', "application/json", 400, "Invalid `note`"),
        (b'{"run": "a", "note": 5}', "application/json", 400, "Invalid `note`"),
        (b'{"run": "a", "note": "two\\nlines"}', "application/json", 400, "one line of at most 100"),
        (b'{"run": "a", "note": "%s"}' % (b"x" * 101), "application/json", 400, "one line of at most 100"),
        (b" " * (MOST_BYTES + 1), "application/json", 413, "at most 16384 bytes"),
    ],
)
def test_what_is_not_a_mark_is_refused_in_words(body: bytes, kind: str, status: int, words: str) -> None:
    with serving(lambda: b"") as url:
        answered, said = post(f"{url}/-/mark", body, kind)

    assert answered == status
    assert words in said
    assert len(said.splitlines()) == 1


def test_a_mark_without_a_length_is_refused() -> None:
    with serving(lambda: b"") as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(b"POST /-/mark HTTP/1.1\r\nContent-Type: application/json\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 411")


@pytest.mark.parametrize("run", ["ppo/gsm8", "\\ud800"])
def test_a_mark_of_an_unknown_run_is_not_found_and_the_nearest_are_named(run: str) -> None:
    def unknown(name: str, _note: str) -> None:
        raise UnknownRunError(name, ["ppo/模"])

    with serving(lambda: b"", unknown) as url:
        status, said = post(f"{url}/-/mark", b'{"run": "%s"}' % run.encode())

    assert status == 404
    assert said == f"There is no run named {run}. Similar names: ppo/模.\n"


def test_nothing_else_takes_a_post() -> None:
    with serving(lambda: b"") as url:
        assert post(f"{url}/metrics", b"{}") == (405, "only GET, HEAD is allowed here\n")
        assert post(f"{url}/nothing", b"{}")[0] == 404


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/../etc/passwd", "/%00"])
def test_other_pages_are_not_found_and_the_answer_says_which_there_are(path: str) -> None:
    with serving(lambda: b"") as url:
        status, _, body = get(url + path)

    assert status == 404
    assert b"/metrics" in body


@pytest.mark.slow
def test_metrics_answer_while_a_large_log_is_read_for_the_first_time(folder: Path) -> None:
    line = "".join(
        verl_json(step, {**measured(step), **{f"x/{key}": step / 7 for key in range(60)}})
        for step in range(400)
    )
    (folder / "a.jsonl").write_text(line * (50_000_000 // len(line) + 1))
    watch, answers = Collector(Settings(path=(str(folder),))), list[Scrape]()
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
