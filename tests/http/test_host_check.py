"""Pages of other sites cannot use the exporters through their reader's browser."""

from __future__ import annotations

import http.client
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.http.message import Answer, Request, text
from exporter.http.routes import HostCheck
from tests.real import Server, free_port

ANSWER = text("200 OK", "ok\n")
CHECK = HostCheck(lambda _: ANSWER, ["stepwatch.example.org"])


def asked(**headers: str) -> Answer:
    answer = CHECK(Request("POST", "/-/mark", headers=headers))
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:9410",
        "localhost:9410",
        "LOCALHOST",
        "[::1]:9410",
        "10.1.2.3",
        "exporter:9410",
        "gpu:9411",
        "stepwatch.example.org",
        "stepwatch.example.org.:443",
    ],
)
def test_names_and_addresses_of_this_machine_are_answered(host: str) -> None:
    assert asked(host=host) == ANSWER
    assert asked(host=host, origin=f"http://{host}") == ANSWER
    assert asked(host=host, origin="https://stepwatch.example.org:3000") == ANSWER


def test_a_client_that_names_no_host_is_answered() -> None:
    assert asked() == ANSWER


def test_a_page_of_another_port_of_this_machine_is_answered() -> None:
    assert asked(host="127.0.0.1:9410", origin="http://localhost:3000") == ANSWER
    assert asked(host="[::1]:9410", origin="http://127.0.0.1:3000") == ANSWER


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:9410",
        "evil@localhost",
        "",
        "[::1",
        "a b",
    ],
)
def test_a_foreign_name_that_resolves_to_this_machine_is_refused_with_the_fix(host: str) -> None:
    answer = asked(host=host)

    assert answer.code == "403"
    assert b"Host: " in answer.body
    assert b"Fix: " in answer.body


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "https://evil.example:9410",
        "http://6.6.6.6",
        "file://",
        "http://127.0.0.1@evil",
    ],
)
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    answer = asked(host="127.0.0.1:9410", origin=origin)

    assert answer.code == "403"
    assert b"Origin: " in answer.body


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_header_breaks_the_check(host: str, origin: str) -> None:
    assert asked(host=host, origin=origin).code in ("200", "403")


def test_new_settings_count_at_once() -> None:
    check = HostCheck(lambda _: ANSWER, ())
    request = Request("GET", "/metrics", headers={"host": "box.example.org:9411"})
    assert check(request) != ANSWER

    check.hosts = ("box.example.org",)

    assert check(request) == ANSWER


@pytest.mark.parametrize(
    "command",
    [("exporter.runs", "--path", "none-yet"), ("exporter.gpu", "--backend", "demo")],
    ids=lambda c: c[0],
)
def test_every_route_of_both_exporters_refuses_a_name_that_a_site_gave_this_machine(
    command: tuple[str, ...],
) -> None:
    port = free_port()
    module, *flags = command
    server = Server(
        [sys.executable, "-m", module, f"--port={port}", "--hosts=box.example.org", *flags],
        f"http://127.0.0.1:{port}/-/healthy",
    )

    def status(method: str, path: str, **headers: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request(method, path, headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()

    with server:
        for method, path in [
            *(
                ("GET", each)
                for each in (
                    "/",
                    "/metrics",
                    "/-/healthy",
                    "/api/v1/runs",
                    "/sd/rollout",
                )
            ),
            *(("POST", each) for each in ("/-/mark", "/-/release?seconds=0", "/api/v1/prometheus/targets")),
        ]:
            assert status(method, path, Host=f"site.example:{port}") == 403
            assert status(method, path, Origin="http://site.example") == 403
        assert status("GET", "/metrics", Host="box.example.org") == 200
        assert status("GET", "/metrics", Origin="http://127.0.0.1:3000") == 200
