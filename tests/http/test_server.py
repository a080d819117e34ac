"""The small HTTP server: what is answered, and what broken clients do to it."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.http import server as server_module
from exporter.http.exposition import Sample
from exporter.http.message import Answer, Later, Pages, Request
from exporter.http.server import LONGEST_HEAD, MOST_UNHEARD, Server

MOST_BODY = 800
LARGE = b"x" * 20_000_000
PIECES = st.binary(max_size=60) | st.sampled_from([b"\r\n\r\n", b"GET / HTTP/1.1", b"Content-Length: 3"])


def page(request: Request) -> Answer:
    if request.method == "POST":
        return Answer(
            "405 Method Not Allowed", "text/plain", repr(request).encode(), (("Allow", "GET, HEAD"),)
        )
    if request.path == "/metrics":
        return Answer("200 OK", "text/plain; version=0.0.4", b"gpu_up 1\n")
    if request.path == "/large":
        return Answer("200 OK", "text/plain", LARGE)
    return Answer("404 Not Found", "text/plain", b"no such page\n")


@contextmanager
def running(pages: Pages = page) -> Iterator[Server]:
    """A server in threads."""
    server = Server(("127.0.0.1", 0), pages, MOST_BODY)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def serving(pages: Pages = page) -> Iterator[int]:
    """A server; gives its port."""
    with running(pages) as server:
        yield server.port


@pytest.fixture(name="port")
def _port() -> Iterator[int]:
    with serving() as port:
        yield port


def exchange(port: int, request: bytes) -> bytes:
    """Everything that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))


def get(port: int, path: str, method: str = "GET") -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read()
    finally:
        connection.close()


def test_head_is_a_get_without_a_body(port: int) -> None:
    assert exchange(port, b"HEAD /metrics HTTP/1.0\r\n\r\n").endswith(b"close\r\n\r\n")
    assert get(port, "/metrics", "HEAD") == (200, "text/plain; version=0.0.4", b"")


def test_a_page_learns_all_about_the_request_and_says_which_methods_it_takes(port: int) -> None:
    said = exchange(port, b"POST /a?b=c HTTP/1.0\r\nORIGIN: http://Elsewhere\r\ncontent-length: 2\r\n\r\nhi")
    headers = {"origin": "http://Elsewhere", "content-length": "2"}

    assert said.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET, HEAD\r\n" in said
    assert said.endswith(repr(Request("POST", "/a", "b=c", headers, b"hi", "127.0.0.1")).encode())


def test_a_body_may_come_in_pieces_and_the_next_request_right_after_it(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 6\r\n\r\nab")
        time.sleep(0.1)
        client.sendall(b"cd")
        time.sleep(0.1)
        client.sendall(b"efGET /metrics HTTP/1.0\r\n\r\n")
        answers = b"".join(iter(lambda: client.recv(4096), b""))

    assert b"b'abcdef'" in answers
    assert answers.endswith(b"gpu_up 1\n")


def test_a_client_that_waits_before_its_body_is_asked_to_go_on(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"POST / HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"hi")
        assert b"b'hi'" in b"".join(iter(lambda: client.recv(4096), b""))


@pytest.mark.parametrize(
    ("reported", "status"),
    [
        (b"Content-Length: 900", b"413"),
        (b"Content-Length: " + b"9" * 4000, b"413"),
        (b"Transfer-Encoding: chunked", b"411"),
        (b"Content-Length: -1", b"400"),
        (b"Content-Length: \xb2", b"400"),
    ],
)
def test_a_refused_body_that_comes_late_does_not_cut_off_the_answer(
    port: int, reported: bytes, status: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"POST / HTTP/1.1\r\n" + reported + b"\r\n\r\n")
        time.sleep(0.1)
        client.sendall(b"x" * 900)
        time.sleep(0.1)
        said = b"".join(iter(lambda: client.recv(4096), b""))

    assert said.startswith(b"HTTP/1.1 " + status)
    assert said.count(b"HTTP/1.1") == 1


def test_a_body_without_end_is_not_listened_to(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(ConnectionError):
            pour(client, 10 * MOST_UNHEARD)


def pour(client: socket.socket, size: int) -> None:
    for _ in range(size // 1000):
        client.sendall(b"x" * 1000)


def test_an_answer_may_wait_for_others_and_holds_up_no_one() -> None:
    ready = threading.Event()

    def pages(request: Request) -> Answer | Later:
        if request.path == "/slow":
            return lambda: page(request._replace(path="/metrics" if ready.wait(10) else ""))
        return page(request)

    with serving(pages) as port, socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(b"GET /slow HTTP/1.1\r\n\r\nGET /nothing HTTP/1.0\r\n\r\n")
        assert get(port, "/metrics")[0] == 200
        slow.settimeout(0.2)
        with pytest.raises(TimeoutError):
            slow.recv(1)
        slow.settimeout(10)
        ready.set()
        answers = b"".join(iter(lambda: slow.recv(4096), b""))
        assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"404"]


def test_an_answer_under_way_may_be_waited_for_at_the_end() -> None:
    ready, waits = threading.Event(), threading.Event()

    def pages(request: Request) -> Later:
        return lambda: page(request) if waits.set() or ready.wait(10) else page(request._replace(path=""))

    server = Server(("127.0.0.1", 0), pages)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert waits.wait(10)
        threading.Timer(0.3, ready.set).start()
        server.stop(finish=True)
        assert client.recv(4096).startswith(b"HTTP/1.1 200")


def test_pages_are_made_one_at_a_time() -> None:
    inside = threading.Lock()

    def pages(request: Request) -> Answer:
        assert inside.acquire(blocking=False)
        time.sleep(0.01)
        inside.release()
        return page(request)

    with serving(pages) as port, ThreadPoolExecutor(8) as pool:
        assert {status for status, *_ in pool.map(lambda _: get(port, "/metrics"), range(40))} == {200}


def test_requests_sent_ahead_are_answered_in_order(port: int) -> None:
    first, second = b"GET /metrics HTTP/1.1\r\n\r\n", b"GET /nothing HTTP/1.1\r\n\r\n"
    answers = exchange(port, first + second + b"GET /metrics HTTP/1.0\r\n\r\n")

    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"404", b"200"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.1\r\nconnection: Close\r\n\r\n", b"200"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /metrics?\nSet-Cookie:x=1 HTTP/1.1\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET /metrics FTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello", b"404"),
        (b"x" * (LONGEST_HEAD + 1), b"431"),
    ],
)
def test_after_these_the_connection_is_closed(port: int, request_: bytes, status: bytes) -> None:
    assert exchange(port, request_).startswith(b"HTTP/1.1 " + status)


def test_a_slow_client_holds_up_no_one(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(b"GET /metr")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as greedy:
            greedy.sendall(b"GET /large HTTP/1.1\r\n\r\n")
            assert get(port, "/metrics")[0] == 200
        slow.sendall(b"ics HTTP/1.0\r\n\r\n")
        assert b"gpu_up 1" in b"".join(iter(lambda: slow.recv(4096), b""))


def test_a_large_page_arrives_whole(port: int) -> None:
    assert get(port, "/large")[2] == LARGE


def test_a_client_that_goes_away_harms_no_one(port: int) -> None:
    for request in (b"", b"GET /large HTTP/1.1\r\n\r\n"):
        client = socket.create_connection(("127.0.0.1", port), timeout=10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(request)
        client.close()

    assert get(port, "/metrics")[0] == 200


def test_who_says_nothing_for_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "IDLE_SECONDS", 0.2)
    with serving() as port, socket.create_connection(("127.0.0.1", port), timeout=10) as idle:
        assert idle.recv(1) == b""


@pytest.mark.parametrize("begun", [b"GET /metr", b"POST / HTTP/1.1\r\nContent-Length: 700\r\n\r\nx"])
def test_who_sends_a_byte_now_and_then_is_dropped(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(server_module, "REQUEST_SECONDS", 0.3)
    with serving() as port, socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(begun)
        assert any(is_gone(slow) for _ in range(100))


def is_gone(slow: socket.socket) -> bool:
    """Sends one more byte; is no one there?"""
    slow.settimeout(0.05)
    try:
        slow.sendall(b"x")
        return slow.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_page_that_fails_is_a_fault_and_the_next_one_is_there(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Answer:
        raise ZeroDivisionError

    def pages(request: Request) -> Answer | Later:
        if request.path == "/broken":
            return fails()
        return fails if request.path == "/broken/later" else page(request)

    with serving(pages) as port:
        assert get(port, "/broken")[0] == 500
        assert get(port, "/broken/later")[0] == 500
        assert get(port, "/metrics")[0] == 200
    faults = [record.exc_info and record.exc_info[0] for record in caplog.records]
    assert faults == [ZeroDivisionError, ZeroDivisionError]


def test_answers_and_dropped_clients_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "REQUEST_SECONDS", 0.1)
    with running() as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
        slow.sendall(b"GET")
        assert slow.recv(1) == b""
        exchange(server.port, 2 * b"GET /metrics HTTP/1.1\r\n\r\n" + b"nonsense\r\n\r\n")
        counts = {family.name: dict_of(samples) for family, samples in server.samples()}
    assert counts == {
        "stepwatch_http_requests_total": {"200": 2, "400": 1},
        "stepwatch_http_clients_dropped_total": {"slow": 1, "surplus": 0},
    }


def dict_of(samples: list[Sample]) -> dict[str, float]:
    return {value: count for labels, count in samples for value in labels.values()}


def test_any_bytes_in_any_pieces_leave_the_server_working() -> None:
    with serving() as port:

        @settings(deadline=None)
        @given(st.lists(PIECES, max_size=5))
        def send(pieces: list[bytes]) -> None:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                for piece in pieces:
                    try:
                        client.sendall(piece)
                    except ConnectionError:
                        break
            assert get(port, "/metrics")[0] == 200

        send()
