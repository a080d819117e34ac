"""The door passes on what people and programs ask, refuses foreign pages, and outlives all that hangs."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from exporter.door import backend_access
from exporter.door.proxy import HEAD_SECONDS, MOST_BODY, MOST_CLIENTS
from tests.door.backend import LARGE, Backend
from tests.door.conftest import Door, Site, ask, before
from tests.real import eventually, free_port
from tests.real.listening import Listening
from tests.real.waiting import in_time
from tests.runs.scrape import Scrape

SILENCE = {
    "matchers": [{"name": "run", "value": ".+", "isRegex": True}],
    "startsAt": "2026-01-01T00:00:00Z",
    "endsAt": "2099-01-01T00:00:00Z",
    "createdBy": "test",
    "comment": "test",
}
JSON = "application/json"


def silence(address: str, **headers: str) -> int:
    body = json.dumps(SILENCE).encode()
    return ask(address, "/api/v2/silences", "POST", body, Content_Type=JSON, **headers).status


def silences(address: str) -> int:
    return len(json.loads(ask(address, "/api/v2/silences").body))


def test_what_people_and_programs_ask_is_answered_by_prometheus_and_alertmanager(site: Site) -> None:
    found = ask(site.door.prometheus, "/api/v1/query?query=1%2B1")
    assert json.loads(found.body)["data"]["result"][1] == "2"
    form = ask(
        site.door.prometheus,
        "/api/v1/query",
        "POST",
        b"query=3",
        Content_Type="application/x-www-form-urlencoded",
    )
    assert json.loads(form.body)["data"]["result"][1] == "3"
    before = silences(site.door.alertmanager)
    assert silence(site.door.alertmanager) == 200
    assert silences(site.door.alertmanager) == before + 1


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic c3RlcHdhdGNoOg=="}])
def test_the_ports_behind_the_door_want_a_password(site: Site, headers: dict[str, str]) -> None:
    for program in (site.prometheus, site.alertmanager):
        for path in ("/", "/-/ready", "/metrics", "/api/v2/silences", "/api/v1/query?query=1"):
            assert ask(f"127.0.0.1:{program.port}", path, **headers).status == 401


FOREIGN = {
    "another site": {"Origin": "https://evil.example"},
    "another port of this machine": {"Origin": "http://127.0.0.1:8888"},
    "no port": {"Origin": "http://127.0.0.1"},
    "another name of this machine": {"Origin": "http://localhost:8888"},
    "a file or a sandbox": {"Origin": "null"},
    "an empty origin": {"Origin": ""},
    "DNS rebinding": {"Host": "evil.example"},
    "DNS rebinding to the very port": {"Host": "evil.example:9093", "Origin": "http://evil.example:9093"},
    "a picture or script": {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
    "a picture of another port": {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors"},
    "a frame": {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_foreign_pages_neither_silence_nor_read(site: Site, headers: dict[str, str]) -> None:
    count = silences(site.door.alertmanager)
    assert silence(site.door.alertmanager, **headers) == 403
    for address in (site.door.prometheus, site.door.alertmanager):
        for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
            refused = ask(address, "/api/v2/silences", method, **headers)
            assert refused.status == 403
            assert not [name for name in refused.headers if name.lower().startswith("access-control")]
        assert b"Fix: " in ask(address, "/", **headers).body
    assert silences(site.door.alertmanager) == count


def test_a_form_of_another_page_is_refused_though_it_is_a_navigation(site: Site) -> None:
    headers = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert silence(site.door.alertmanager, **headers) == 403


def test_own_pages_and_links_that_are_followed_are_answered(site: Site) -> None:
    for address in (site.door.prometheus, site.door.alertmanager):
        assert ask(address, "/-/ready", Origin=f"http://{address}").status == 200
        assert ask(address, "/-/ready", Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="cors").status == 200
        link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
        assert ask(address, "/-/ready", **link).status == 200
        name = address.replace("127.0.0.1", "localhost")
        assert ask(address, "/-/ready", Host=name, Origin=f"http://{name}").status == 200


@pytest.mark.parametrize(
    ("part", "path"), [("prometheus", "/api/v1/query?query=1"), ("alertmanager", "/api/v2/status")]
)
def test_no_answer_allows_other_origins_to_read_it(site: Site, part: str, path: str) -> None:
    address, bare = getattr(site.door, part), f"127.0.0.1:{getattr(site, part).port}"
    origin = {"Origin": f"http://{address}"}
    password = backend_access.authorization(site.door.access / backend_access.PASSWORD)
    assert ask(bare, path, Authorization=password, **origin).headers["Access-Control-Allow-Origin"]

    answer = ask(address, path, **origin)

    assert answer.status == 200
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"


def test_a_clients_own_login_is_replaced_by_the_doors(site: Site) -> None:
    login = {"Authorization": "Basic d3Jvbmc6d3Jvbmc="}
    assert ask(site.door.prometheus, "/-/ready", **login).status == 200


def test_links_of_config_yaml_are_own_pages_as_soon_as_they_are_written(tmp_path: Path) -> None:
    settings, access = tmp_path / "door.json", tmp_path / "backend"
    settings.write_text('{"origins": []}')
    backend_access.make(access, mode=0o600)
    headers = {"Host": "prometheus.example.org", "Origin": "https://prometheus.example.org"}
    other = {**headers, "Origin": "https://prometheus.example.org:8443", "Host": "127.0.0.1"}
    with before("127.0.0.1:1", "127.0.0.1:1", access, f"--config.file={settings}") as door:
        assert ask(door.prometheus, "/-/door/healthy", **headers).status == 403
        settings.write_text('{"origins": "soon"')  # half written: the origins before stay
        settings.write_text('{"origins": ["http://localhost:3000", "https://prometheus.example.org"]}')
        eventually(lambda: ask(door.prometheus, "/-/door/healthy", **headers).status == 200)
        # A proxy in front may name the address behind it.
        assert ask(door.prometheus, "/-/door/healthy", **{**headers, "Host": "127.0.0.1"}).status == 200
        assert ask(door.prometheus, "/-/door/healthy", **other).status == 403


@pytest.fixture(name="echo", scope="module")
def _echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    access = tmp_path_factory.mktemp("echo") / "backend"
    backend_access.make(access, mode=0o600)
    with Listening(Backend) as backend:
        address = backend.url.removeprefix("http://")
        with before(address, f"127.0.0.1:{free_port()}", access) as door:
            yield door


def test_headers_of_one_connection_and_logins_are_passed_neither_way(echo: Door) -> None:
    answer = ask(
        echo.prometheus,
        "/a%2Fb?q=%7B%22x%22%7D&y",
        "POST",
        b"\x00body\xff",
        Connection="X-Mine",
        X_Mine="1",
        Keep_Alive="5",
        TE="trailers",
        Upgrade="websocket",
        Proxy_Authorization="Basic x",
        Authorization="Bearer mine",
        X_Kept="1",
    )
    reported = json.loads(answer.body)
    sent = {name.lower(): value for name, value in reported["headers"]}

    assert (reported["path"], reported["method"], reported["body"]) == (
        "/a%2Fb?q=%7B%22x%22%7D&y",
        "POST",
        "\x00body\xff",
    )
    assert sent["authorization"] == backend_access.authorization(echo.access / backend_access.PASSWORD)
    assert sent["x-kept"] == "1"
    assert not sent.keys() & {"x-mine", "keep-alive", "te", "upgrade", "proxy-authorization"}
    assert answer.headers["X-End"] == "1"
    assert answer.headers["X-Hop"] is None


def test_a_large_answer_streams_and_takes_no_memory(echo: Door) -> None:
    before = Scrape(ask(echo.prometheus, "/-/door/metrics").body)
    assert len(ask(echo.prometheus, "/large").body) == LARGE
    after = Scrape(ask(echo.prometheus, "/-/door/metrics").body)
    grown = after.value("process_resident_memory_bytes") - before.value("process_resident_memory_bytes")
    assert grown < 8 << 20


def test_half_an_answer_is_never_passed_on_as_a_whole_one(echo: Door) -> None:
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        ask(echo.prometheus, "/dies")
    assert ask(echo.prometheus, "/after").status == 200


@pytest.mark.parametrize("size", [MOST_BODY + 1, 40 * MOST_BODY])
def test_a_body_that_is_too_long_is_refused(echo: Door, size: int) -> None:
    with socket.create_connection(echo.prometheus.split(":"), timeout=30) as client:
        client.sendall(f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode())
        client.sendall(bytes(MOST_BODY + 1))
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_dead_backend_is_named_with_the_fix(echo: Door) -> None:
    answer = ask(echo.alertmanager, "/api/v2/alerts")

    assert answer.status == 502
    assert answer.body.startswith(b"Alertmanager at 127.0.0.1:")
    assert b"Connection refused" in answer.body
    assert b"`make status`" in answer.body


def test_a_backend_that_wants_another_password_is_named_and_no_browser_asks_for_one(echo: Door) -> None:
    answer = ask(echo.prometheus, "/401")

    assert answer.status == 502
    assert b"refuses the password in " in answer.body
    assert answer.headers["WWW-Authenticate"] is None


def test_a_lost_password_is_named_with_its_file(tmp_path: Path) -> None:
    with before("127.0.0.1:1", "127.0.0.1:1", tmp_path / "nowhere") as door:
        answer = ask(door.prometheus, "/")
        assert answer.status == 502
        assert f"{tmp_path / 'nowhere' / 'password'}".encode() in answer.body


IMPATIENT = """
import sys
from exporter.door import __main__, proxy
proxy.ANSWER_SECONDS = 0.3
sys.exit(__main__.main())
"""


def test_a_backend_that_does_not_answer_in_time_is_named_with_the_fix(tmp_path: Path) -> None:
    backend_access.make(tmp_path, mode=0o600)
    with Listening(Backend) as backend:
        address = backend.url.removeprefix("http://")
        with before(address, address, tmp_path, program=("-c", IMPATIENT)) as door:
            answer = ask(door.prometheus, "/silent")
            assert ask(door.prometheus, "/here").status == 200

    assert answer.status == 504
    assert answer.body.startswith(f"Prometheus at {address} does not answer in time. ".encode())
    assert b"`make status`" in answer.body


STUCK = {
    "silent": b"",
    "half a head": b"GET /metrics HTTP/1.1\r\nHo",
    "half a body": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{",
    "waits for the backend": b"GET /silent HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "never reads": b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "asks again and again and never reads": 600 * b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("way", STUCK)
def test_stuck_clients_leave_the_door_to_others(echo: Door, way: str) -> None:
    with ExitStack() as stuck:
        for _ in range(100):
            client = stuck.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.connect(("127.0.0.1", int(echo.prometheus.split(":")[1])))
            client.sendall(STUCK[way])
        begun = time.monotonic()
        assert ask(echo.prometheus, "/here").status == 200
        assert in_time(time.monotonic() - begun, 5)


def test_an_idle_client_is_dropped(echo: Door) -> None:
    with socket.create_connection(echo.prometheus.split(":"), timeout=10 * HEAD_SECONDS) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        begun = time.monotonic()
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
        assert in_time(time.monotonic() - begun, HEAD_SECONDS + 2)


def test_of_too_many_clients_the_idle_ones_are_dropped(echo: Door) -> None:
    with ExitStack() as many:
        for _ in range(MOST_CLIENTS + 100):
            many.enter_context(socket.create_connection(echo.prometheus.split(":")))

        def dropped() -> bool:
            page = Scrape(ask(echo.prometheus, "/-/door/metrics").body)
            return (page.value("stepwatch_door_clients_dropped_total", reason="surplus") or 0) >= 90

        eventually(dropped)


def test_who_hangs_up_is_not_waited_for(echo: Door) -> None:
    with socket.create_connection(echo.prometheus.split(":")) as client:
        client.sendall(STUCK["waits for the backend"])
    assert ask(echo.prometheus, "/here").status == 200


def test_a_stopped_door_ends_at_once_though_clients_hang(tmp_path: Path) -> None:
    backend_access.make(tmp_path, mode=0o600)
    with (
        Listening(Backend) as backend,
        before(backend.url.removeprefix("http://"), "127.0.0.1:1", tmp_path) as door,
    ):
        client = socket.create_connection(door.prometheus.split(":"))
        client.sendall(STUCK["waits for the backend"])
        time.sleep(0.3)
        begun = time.monotonic()
        door.server.stop()
        assert in_time(time.monotonic() - begun, 5)
        client.close()
