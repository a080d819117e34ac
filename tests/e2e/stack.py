"""The whole stack at its default settings, except for ports and a webhook as receiver."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import pytest
import yaml
from typing_extensions import Self

from demo.pages import RAY_LIST
from stepwatch.config import Config, load
from stepwatch.config.sections import Ports
from stepwatch.deploy.native import stack as native
from stepwatch.deploy.native.stack import Part
from stepwatch.deploy.native.state import State
from stepwatch.render.generator import generate
from stepwatch.system import http_client
from stepwatch.system.programs import Program
from tests.real import Server, Tool, WebhookSink, alertmanager, free_port, prometheus, query
from tests.real.credentials import sign_in
from tests.real.waiting import LIMIT, counted, eventually

ROOT = Path(__file__).parents[2]
PARTS = ("exporter", "prometheus", "alertmanager")

PAIRS = [("2.42", "0.25"), ("3.13", "0.31")]
"""Prometheus and Alertmanager: the oldest versions promised to work, and the newest."""

MAINLY_NEWEST = [
    pytest.param(PAIRS[0], marks=pytest.mark.world, id="oldest"),
    pytest.param(PAIRS[1], id="newest"),
]
"""For stacks in which little depends on the versions: `make test-world` tests the oldest ones."""


class Stack:
    """Exporter, Prometheus, Alertmanager and a webhook sink; ``runs`` is the folder they watch.

    Args:
        folder: An empty folder for everything.
        versions: Of Prometheus and Alertmanager.
        settings: More of config.yaml, over what the stack needs.
    """

    names: ClassVar[tuple[str, ...]] = PARTS

    def __init__(self, folder: Path, versions: tuple[str, str], **settings: Any) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self.runs.mkdir(parents=True)
        self.sink = WebhookSink()
        self.state = State(folder / "state")
        self.state.make_password()
        self.config = self._configure(settings)
        stack = native.Stack(self.config, self.state, self.runs)
        self.parts = {part.name: part for part in stack.parts(*_programs(*versions))}
        self.exporter, self.prometheus, self.alertmanager = (server(self.parts[name]) for name in PARTS)
        sign_in(self.state.credentials, self.config.ports.prometheus, self.config.ports.alertmanager)
        page = f"http://{self.config.address('prometheus')}/metrics"
        self.evaluations = counted("evaluations", page, "prometheus_rule_group_iterations_total", "rl.yml;rl")
        self._open = ExitStack()

    def _configure(self, settings: dict[str, Any]) -> Config:
        ports = {name: free_port() for name in Ports.model_fields}
        receiver = {"name": "sink", "webhook": {"url": self.sink.url}}
        ours = {"runs": {"path": str(self.runs)}, "ports": ports, "receivers": [receiver]}
        config = {**ours, "discovery": {"ray": None}, **settings}  # no Ray of this machine
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        generate(path, self.state.rendered, place=partial(self.state.deployment, parts=frozenset(self.names)))
        return load(path)

    def find_demo(self) -> None:
        """Have the exporter read the demo's list of pages, as `make up DEMO=1` does; before it starts."""
        part = self.parts["exporter"]
        listed = f"--discovery-lists={self.runs / RAY_LIST}"
        self.exporter = server(replace(part, command=(*part.command, listed)))

    def query(self, promql: str) -> list[dict[str, Any]]:
        """The result of an instant query."""
        return query(f"http://{self.config.address('prometheus')}", promql)

    def firing(self) -> set[tuple[str, str]]:
        """Alert name and run of all that Alertmanager holds now, inhibited ones included."""
        text = http_client.read(f"http://{self.config.address('alertmanager')}/api/v2/alerts", timeout=10)
        alerts = json.loads(text or "")
        return {(alert["labels"]["alertname"], alert["labels"].get("run", "")) for alert in alerts}

    def sent(self, run: str, status: str = "firing") -> list[tuple[str, str]]:
        """Name and severity of the alerts about a run that reached the webhook, once per message."""
        return [
            (alert["labels"]["alertname"], alert["labels"]["severity"])
            for message in list(self.sink.received)
            for alert in message.alerts
            if alert["labels"].get("run") == run and alert["status"] == status
        ]

    def wait_until(self, fact: Callable[[], object], limit: float = LIMIT) -> None:
        """Wait for a fact no longer than so many evaluations of the rules about runs."""
        eventually(fact, self.evaluations, limit, pause=0.5, seen=self._seen)

    def wait_sent(self, run: str, names: set[str]) -> dict[str, Any]:
        """The first alert of one of these names about the run that reaches the webhook."""

        def fitting() -> Iterator[dict[str, Any]]:
            alerts = (alert for message in list(self.sink.received) for alert in message.alerts)
            about = (alert for alert in alerts if alert["labels"].get("run") == run)
            return (alert for alert in about if alert["labels"]["alertname"] in names)

        self.wait_until(lambda: any(fitting()))
        return next(fitting())

    def wait_step(self, run: str, step: int) -> None:
        """Wait until Prometheus knows that the run has come that far."""
        self.wait_until(lambda: bool(self.query(f'rl_step{{run="{run}"}} >= {step}')))

    def _seen(self) -> str:
        """What a wait that failed shows."""
        steps = {each["metric"]["run"]: each["value"][1] for each in self.query("rl_step")}
        return f"steps {steps}, alerts {sorted(self.firing())}, messages {self.sink.summary()}"

    def __enter__(self) -> Self:
        for part in (self.sink, self.alertmanager, self.exporter, self.prometheus):
            self._open.enter_context(part)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


def _programs(of_prometheus: str, of_alertmanager: str) -> Iterator[Program]:
    for tool in (prometheus(of_prometheus), alertmanager(of_alertmanager)):
        yield _program(tool)


def _program(tool: Tool) -> Program:
    major, minor, patch = map(int, tool.version.split("."))
    return Program(tool.server, (major, minor, patch), tool.options)


def server(part: Part) -> Server:
    """The part as ``make up`` starts it."""
    assert part.web, f"{part.name} has no pages"
    ready = part.web.page(part.web.ready)
    return Server(part.command, ready, env={**os.environ, **part.environment}, cwd=ROOT)
