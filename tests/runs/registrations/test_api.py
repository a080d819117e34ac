"""rl-insight's server API by HTTP: what it answers to whom, and what it counts."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from exporter.http.routes import Routes
from exporter.http.server import Server, ServerThread
from exporter.runs.app import MOST_BODY
from exporter.runs.discovery.address import Allowed
from exporter.runs.discovery.registration_api import RESULTS, Api, Token
from exporter.runs.discovery.registrations import Registry, Store
from exporter.runs.files import notice

TARGETS = "/api/v1/prometheus/targets"
ORDER = {"job_name": "vllm", "targets": [{"target": "10.0.0.7:8000", "labels": {"replica": "0"}}]}


class Reported(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]


class Client:
    """Talks to a server with the API and nothing else."""

    def __init__(self, folder: Path, port: int, registry: Registry, api: Api, logged: list[str]) -> None:
        self.folder, self.port, self.registry, self.api, self.logged = folder, port, registry, api, logged

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reported:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(
                method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = connection.getresponse()
            content = answer.read()
            document = (
                json.loads(content) if answer.headers["Content-Type"] == "application/json" else content
            )
            return Reported(answer.status, document, dict(answer.headers))
        finally:
            connection.close()

    def register(self, asked: Any = ORDER, **headers: str) -> Reported:
        body = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
        return self.ask("POST", TARGETS, body, **{"Content_Type": "application/json", **headers})

    def counted(self) -> dict[str, float]:
        """How many requests came to which end, but for those to which none came."""
        ((_, samples),) = self.api.samples()
        assert {labels["result"] for labels, _ in samples} == set(RESULTS)
        return {labels["result"]: count for labels, count in samples if count}


@pytest.fixture(name="serve")
def _serve(tmp_path: Path, logged: list[str]) -> Iterator[Callable[..., Client]]:
    """Start a server; a token's file may be named."""
    running: list[ServerThread] = []

    def serve(token: Path | None = None) -> Client:
        registry = Registry(Store(tmp_path / "state", Allowed()))
        ports = {"prometheus_port": 9090, "grafana_port": None}
        api = Api(registry, Allowed(), Token(token), ports)
        server = Server(("127.0.0.1", 0), Routes(api.routes()), MOST_BODY)
        running.append(ServerThread(server))
        running[-1].start()
        return Client(tmp_path, server.port, registry, api, logged)

    yield serve
    for serving in running:
        serving.stop()


def test_it_answers_as_the_server_of_rl_insight_does(serve: Callable[..., Client]) -> None:
    client = serve()

    assert client.ask("GET", "/healthz")[:2] == (200, {"status": "ok"})
    services = {"status": "ok", "otlp_port": None, "prometheus_port": 9090, "grafana_port": None}
    assert client.ask("GET", "/api/v1/services")[:2] == (200, services)
    status, answer, _ = client.register()
    assert status == 200
    assert answer == {
        "status": "ok",
        "prometheus_reloaded": False,
        "job_name": "vllm",
        "target_count": 1,
        "config_file": None,
        "targets_file": None,
    }


def test_what_is_registered_becomes_targets_with_our_labels(serve: Callable[..., Client]) -> None:
    client = serve()
    client.register()
    client.register({"targets": ["10.0.0.7:9092"]})
    client.register({"job_name": "transfer_queue", "targets": ["10.0.0.7:9100"], "labels": {"run": "ppo"}})

    found = {target.address: dict(target.labels) for target in client.registry.targets()}
    rollout = {"job": "rollout", "role": "rollout"}
    trainer = {"job": "trainer", "role": "trainer"}
    assert found == {
        "10.0.0.7:8000": {**rollout, "replica": "0", "rl_insight_job": "vllm"},
        "10.0.0.7:9092": {**trainer, "rl_insight_job": "trainer_metrics"},
        "10.0.0.7:9100": {**trainer, "rl_insight_job": "transfer_queue", "run": "ppo"},
    }
    assert client.registry.trainers() == ["10.0.0.7:9092"]


def test_a_page_of_a_browser_can_register_nothing(serve: Callable[..., Client]) -> None:
    client = serve()

    refused = client.register(Origin="http://example.org")
    assert refused.status == 403
    for words in (
        "from browsers are refused",
        "Expected: no Origin header",
        "Fix: register servers from a program",
    ):
        assert words in refused.body["detail"]
    assert client.register(Origin="null").status == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert client.register(Content_Type=kind).status == 415
    assert client.ask("OPTIONS", TARGETS, Origin="http://example.org").status == 405
    assert client.registry.targets() == []
    assert client.counted() == {"origin": 2, "content_type": 4}


@pytest.mark.parametrize(
    ("asked", "status", "result"),
    [
        (b"{", 400, "malformed"),
        (b"", 400, "malformed"),
        ({"targets": ["example.org:80"]}, 400, "address"),
        ({"targets": ["10.0.0.7:80"], "labels": {"job": "runs"}}, 400, "labels"),
    ],
)
def test_a_refusal_says_why_and_is_counted(
    serve: Callable[..., Client], asked: Any, status: int, result: str
) -> None:
    client = serve()
    answer = client.register(asked)

    assert answer.status == status
    assert "Expected: " in answer.body["detail"] or "not an IP address" in answer.body["detail"]
    assert client.counted() == {result: 1}
    assert client.registry.targets() == []


def test_one_server_that_may_not_be_read_refuses_them_all(serve: Callable[..., Client]) -> None:
    client = serve()

    assert client.register({"targets": ["10.0.0.7:1", "8.8.8.8:1"]}).status == 400
    assert client.registry.targets() == []


def test_a_body_too_large_is_refused(serve: Callable[..., Client]) -> None:
    client = serve()
    status, words, _ = client.register(b" " * (MOST_BODY + 1))

    assert status == 413
    assert b"at most" in words


def test_a_thousand_servers_of_a_job_fit_into_one_request(serve: Callable[..., Client]) -> None:
    servers = [
        {"target": f"10.100.200.{n // 9 + 1}:{50_000 + n}", "labels": {"replica": str(n)}}
        for n in range(1000)
    ]

    assert serve().register({"job_name": "vllm", "targets": servers}).body["target_count"] == 1000


def test_methods_and_paths_that_are_not_there_are_refused(serve: Callable[..., Client]) -> None:
    client = serve()

    assert client.ask("GET", TARGETS).status == 405
    assert client.ask("DELETE", TARGETS).status == 405
    assert client.ask("POST", "/api/v1/services", b"{}").status == 405
    assert client.ask("GET", "/api/v1/other").status == 404


def test_why_servers_are_refused_is_said_once_with_the_fix(serve: Callable[..., Client]) -> None:
    client = serve()
    for _ in range(3):
        assert client.register({"targets": ["192.0.2.2:9092"]}).status == 400

    (words,) = client.logged
    assert words.startswith("127.0.0.1 may not register servers: ")
    assert "192.0.2.2:9092" in words
    assert "add it to discovery.allow in config.yaml" in words


def test_a_flood_of_refusals_does_not_flood_the_log_and_hides_no_other(
    serve: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice, "MOST_HOURLY", 10)
    client = serve()
    for number in range(30):
        client.register({"targets": [f"192.0.2.2:{1000 + number}"]})
    assert len(client.logged) == 10
    client.register({"targets": []})

    assert "targets is not a list" in client.logged[10]


def test_a_flood_is_answered_when_to_come_again(serve: Callable[..., Client]) -> None:
    client = serve()
    answers = [client.register({"targets": ["8.8.8.8:1"]}) for _ in range(70)]
    late = [answer for answer in answers if answer.status == 429]

    assert len(late) >= 5  # 60 at once, and a few more for the time that this took
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in late)
    assert client.counted() == {"address": 70 - len(late), "rate": len(late)}
    assert client.ask("GET", "/healthz").status == 200


def test_with_a_token_only_who_knows_it_registers(serve: Callable[..., Client], tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("sesame\n")
    file.chmod(0o600)
    client = serve(file)

    refused = client.register()
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"].startswith("Basic")
    assert client.register(Authorization="Bearer simsalabim").status == 401
    assert client.register(Authorization="Bearer sesame").status == 200
    file.unlink()
    assert client.register(Authorization="Bearer sesame").status == 503
    assert client.counted() == {"token": 2, "accepted": 1, "token_file": 1}
    assert client.ask("GET", "/healthz").status == 200
