"""The whole run exporter in this process, asked over HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest

from exporter.runs import cli
from exporter.runs.app import App
from exporter.runs.overview.panels import DEFAULT
from exporter.runs.targets import discovery
from tests.real import eventually, free_port
from tests.runs.scrape import Scrape

TARGETS = "/api/v1/prometheus/targets"


class Reply(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]


class Served:
    """An exporter with these flags; it reads logs from ``looks`` on."""

    def __init__(self, *flags: object) -> None:
        self.port, self._stop = free_port(), Event()
        self._thread = Thread(target=self._look, daemon=True)
        self.looks = self._thread.start
        words = [*map(str, flags), f"--port={self.port}", "--poll=0.1"]
        self.app = App(cli.command_line(words).options(), DEFAULT, self._stop.is_set)
        self.app.start()

    def _look(self) -> None:
        while not self._stop.wait(min(self.app.look(), 0.05)):
            pass

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident:
            self._thread.join()
        self.app.stop()
        for source in self.app._collector.sources[1:]:
            for page in source.pages.values():  # type: ignore[attr-defined]
                page.stop()

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            shown = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, shown)
            answer = connection.getresponse()
            text, kind = answer.read(), answer.headers["Content-Type"]
            return Reply(answer.status, json.loads(text) if "json" in kind else text, dict(answer.headers))

    def register(self, asked: Any, **headers: str) -> Reply:
        body = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
        return self.ask("POST", TARGETS, body, **{"Content_Type": "application/json", **headers})

    def listed(self) -> dict[str, dict[str, str]]:
        """What Prometheus is to scrape: labels by address."""
        status, groups, _ = self.ask("GET", "/sd/rollout")
        assert status == 200
        return {address: each["labels"] for each in groups for address in each["targets"]}

    def scrape(self) -> Scrape:
        return Scrape(self.ask("GET", "/metrics").body)

    def errors(self, what: str = "stepwatch_discovery_errors_total") -> dict[tuple[str, ...], float]:
        """The faults that are counted, by the values of their labels."""
        found = self.scrape().all(what).items()
        return {tuple(value for _, value in sorted(labels)): count for labels, count in found if count}

    def until(self, fact: Callable[[], object]) -> None:
        eventually(fact, pause=0.02, seen=lambda: (self.listed(), self.errors()))

    def lists(self, *addresses: str) -> None:
        """Wait until Prometheus gets these servers."""
        self.until(lambda: self.listed().keys() == set(addresses))


Serve = Callable[..., Served]
"""Starts an exporter that watches the test's folder, with these flags besides."""


@pytest.fixture(name="serve")
def _serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start exporters that look and probe often, on this machine only."""
    real = discovery.probe

    async def probe(host: str, *rest: Any) -> tuple[bool, int | None] | None:
        return await real(host, *rest) if host.startswith("127.") else None

    monkeypatch.setattr(discovery, "probe", probe)
    for name, seconds in (("LOOK", 0.02), ("START", 0.02), ("PROBE", 0.05), ("TIMEOUT", 0.3)):
        monkeypatch.setattr(discovery, f"{name}_SECONDS", seconds)
    running: list[Served] = []

    def serve(*flags: object, looks: bool = True) -> Served:
        running.append(Served("--path", folder, *flags))
        if looks:
            running[-1].looks()
            eventually(lambda: running[-1].ask("GET", "/sd/rollout").status == 200, pause=0.02)
        return running[-1]

    yield serve
    for each in running:
        each.stop()
    for thread in threading.enumerate():
        if thread.name == "discovery":  # it would go on with what a test has changed back
            thread.join(20)
            assert not thread.is_alive(), "the probes of targets did not end"
