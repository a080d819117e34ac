"""Who watches the watcher: a checker that is pinged, and a second machine that watches the first one.

The first machine is a network namespace of its own with Prometheus and Alertmanager; the second is
this one, with an Alertmanager, the watchdog, and `stepwatch deadman` beside it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.credentials import PEOPLE
from stepwatch.config import Config, load
from stepwatch.config.deployment import OnThisMachine
from stepwatch.config.sections import Ports
from stepwatch.deploy.native import stack as native
from stepwatch.deploy.native.state import State
from stepwatch.render.generator import generate
from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from stepwatch.system.programs import Program
from tests.real import (
    AlertmanagerServer,
    Server,
    WebhookSink,
    alertmanager,
    eventually,
    free_port,
    prometheus,
)
from tests.real.credentials import sign_in
from tests.real.machine import Machine

pytestmark = pytest.mark.e2e

QUICK = {"notify": {"critical": {"group_wait": "1s", "group_interval": "1s"}}, "discovery": {"ray": None}}
EVERY, PATIENCE = 1, 4
"""Seconds between two pings, and of silence until PeerDown."""
QUIET_SECONDS = 8 * EVERY
"""Without a ping for that long, a checker that waits for a few of them notifies."""


class First:
    """The stack on the other machine, and the checker outside of both."""

    def __init__(self, folder: Path, box: Machine, versions: tuple[str, str]) -> None:
        self.checker = WebhookSink(host=box.outside)
        folder.mkdir()
        secret = folder / "checker-url"
        secret.write_text(self.checker.url)
        old = versions[1] == "0.25"  # which reads no URL from a file
        deadman = {"url": self.checker.url} if old else {"url_file": str(secret)}
        settings = {
            "listen": box.address,
            "deadman": {**deadman, "every": f"{EVERY}s"},
            "intervals": {"stack_rules": "1s"},
        }
        place = State(folder / "state")
        place.make_password()
        config = _config(folder, settings, partial(place.deployment, parts=PARTS), place.rendered)
        self.url = f"http://{config.address('alertmanager')}"
        stack = native.Stack(config, place, folder)
        parts = {
            each.name: each
            for each in (
                stack.prometheus(_program(prometheus(versions[0]))),
                stack.alertmanager(_program(alertmanager(versions[1]))),
            )
        }
        ready = {
            "alertmanager": f"{self.url}/-/ready",
            "prometheus": f"http://{config.address('prometheus')}/-/ready",
        }

        def server(name: str, *more: str) -> Server:
            command = box.command(*parts[name].command, *more)
            env = {**os.environ, **parts[name].environment}
            return Server(command, ready[name], env=env, cwd=CHECKOUT)

        sign_in(place.credentials, config.address("prometheus"), config.address("alertmanager"))
        self.password = place.password
        self.alertmanager = server("alertmanager")
        # The last one counts: as with 45 s, only sooner.
        self.prometheus = server("prometheus")
        self.prometheus.command = [
            word.replace("--rules.alert.resend-delay=45s", "--rules.alert.resend-delay=1s")
            for word in self.prometheus.command
        ]

    @property
    def parts(self) -> list[Any]:
        return [self.checker, self.alertmanager, self.prometheus]

    def is_pinged(self, since: float) -> bool:
        return any(message.at > since for message in list(self.checker.received))

    def pings_stopped(self) -> bool:
        return time.time() - self.checker.received[-1].at > QUIET_SECONDS


class Second:
    """The stack that watches, with a receiver of its own."""

    def __init__(self, folder: Path, first: str, password: Path) -> None:
        self.sink = WebhookSink()
        folder.mkdir()
        settings = {
            "peers": [{"url": first, "name": "gpu-1", "username": PEOPLE, "password_file": str(password)}],
            "receivers": [{"name": "oncall", "webhook": {"url": self.sink.url}}],
            "alerts": {"PeerDown": {"for": f"{PATIENCE}s"}, "AlertingBroken": {"enabled": False}},
        }
        self.config = _config(folder, settings, OnThisMachine, folder)
        port = self.config.ports.alertmanager
        self.alertmanager = AlertmanagerServer("0.31", folder / "alertmanager/generated", port=port)
        self.url = f"http://{self.config.address('watchdog')}"
        env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "STEPWATCH_STATE": str(folder / "state")}
        flags = (f"--config.file={folder}/exporter/generated/watchdog.json", "--state", f"exporter={folder}")
        watchdog = (sys.executable, "-m", "exporter.watchdog", *flags, f"--port={self.config.ports.watchdog}")
        self.watchdog = Server(watchdog, f"{self.url}/-/healthy", cwd=CHECKOUT, env=env)
        words = ("deadman", f"--config={folder}/config.yaml", f"--peer={first}", "--every=1s")
        words += (f"--username={PEOPLE}", f"--password-file={password}")
        self.command = Server((sys.executable, "-m", "stepwatch", *words), None, cwd=CHECKOUT, env=env)

    @property
    def parts(self) -> list[Any]:
        return [self.sink, self.alertmanager, self.watchdog, self.command]

    def peer(self) -> dict[str, Any]:
        """What the watchdog knows of the first machine."""
        found: list[dict[str, Any]] = json.loads(
            http_client.read(f"{self.url}/api/v1/findings") or '{"peers": [{}]}'
        )["peers"]
        return found[0]

    def said(self) -> str:
        return self.command.log.read_text()

    def heard_of(self, status: str) -> set[str]:
        """The peers that the receiver was notified of."""
        return {
            alert["labels"]["peer"]
            for message in list(self.sink.received)
            for alert in message.alerts
            if (alert["labels"]["alertname"], alert["status"]) == ("PeerDown", status)
        }

    def is_down(self, *words: str) -> bool:
        peer = self.peer()
        return bool(peer.get("down")) and any(word in peer["problem"] for word in words)

    def is_well(self) -> bool:
        peer = self.peer()
        return bool(peer) and not peer["down"] and peer["problem"] is None


PARTS = frozenset({"prometheus", "alertmanager"})


def _config(folder: Path, settings: dict[str, Any], place: Callable[..., Any], out: Path) -> Config:
    ports = {name: free_port() for name in Ports.model_fields}
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"ports": ports, "runs": {"path": str(folder)}, **QUICK, **settings}))
    generate(file, out, place=place)
    return load(file)


def _program(tool: Any) -> Program:
    major, minor, patch = map(int, tool.version.split("."))
    return Program(tool.server, (major, minor, patch), tool.options)


@pytest.fixture(
    name="both",
    params=[pytest.param(("2.42", "0.25"), marks=pytest.mark.world), ("3.13", "0.31")],
    ids="-".join,
)
def _both(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Machine, First, Second]]:
    found = alertmanager(request.param[1])
    monkeypatch.setenv("STEPWATCH_ALERTMANAGER", str(found.server))
    monkeypatch.setenv("STEPWATCH_AMTOOL", str(found.tool))
    with ExitStack() as parts:
        box = parts.enter_context(Machine())
        first = First(tmp_path / "first", box, request.param)
        second = Second(tmp_path / "second", first.url, first.password)
        for part in first.parts:
            parts.enter_context(part)
        eventually(lambda: first.checker.received)
        for part in second.parts:
            parts.enter_context(part)
        yield box, first, second


def test_a_dead_prometheus_alertmanager_or_network_stops_the_pings_and_is_notified_by_the_second_machine(
    both: tuple[Machine, First, Second],
) -> None:
    box, first, second = both
    address = first.url.removeprefix("http://")

    def stops(kind: str, begun: float, *words: str) -> None:
        def seen() -> str:
            return f"{second.peer()}\n{second.said()}\n{second.sink.summary()}"

        eventually(lambda: second.is_down(*words), pause=0.2, seen=seen)
        found = time.time() - begun
        eventually(lambda: second.heard_of("firing") == {"gpu-1", address}, pause=0.2, seen=seen)
        eventually(first.pings_stopped, pause=0.2)
        print(f"{kind}: down after {found:.0f} s, the last ping after {_last(first) - begun:.1f} s")

    def goes_on() -> None:
        now = time.time()
        eventually(second.is_well, pause=0.2, seen=second.peer)
        eventually(lambda: first.is_pinged(now), pause=0.2)

    goes_on()
    assert not second.heard_of("firing"), second.sink.summary()
    ping = first.checker.received[0]
    assert [each["labels"]["alertname"] for each in ping.alerts] == ["Watchdog"]
    eventually(lambda: f"{address}: well" in second.said(), seen=second.said)

    box.cut()
    stops("network", time.time(), "no response")
    box.mend()
    goes_on()

    first.alertmanager.kill()
    stops("Alertmanager", time.time(), "Connection refused")
    first.alertmanager.start()
    goes_on()

    first.prometheus.kill()
    stops("Prometheus", time.time(), "its Prometheus no longer sends alerts", "has no Watchdog alert")
    first.prometheus.start()
    goes_on()

    eventually(lambda: second.heard_of("resolved") == {"gpu-1", address}, seen=second.sink.summary)
    assert {message.payload["status"] for message in first.checker.received} == {"firing"}
    said = second.said()
    assert f"{address}: DOWN: " in said
    assert said.count(f"{address}: well\n") >= 4


def _last(first: First) -> float:
    return first.checker.received[-1].at
