"""The bridge with a real Alertmanager, run exporter and wrapped trainers; Prometheus' answers are given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import yaml

from exporter.runs.files import launch
from stepwatch.config import load
from stepwatch.config.sections import Ports
from stepwatch.deploy.native import stack as native
from stepwatch.deploy.native.state import State
from stepwatch.render.generator import generate
from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.alertmanager.route import QUICK, Labels, alert, post
from tests.e2e.stack import server
from tests.real import AlertmanagerServer, WebhookSink, free_port
from tests.real.asking import ask
from tests.real.ending import end
from tests.real.listening import Listening
from tests.real.robots import WeCom
from tests.real.waiting import eventually

TRAINER = """
import signal, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
step = 0
while True:
    step += 1
    print(f"step:{step} - critic/score/mean:0.5 - actor/kl_loss:0.1 - actor/entropy_loss:0.3", flush=True)
    time.sleep(0.1)
"""
EXPLOSION = {"on": "KLExplosion", "for": "0s", "do": ["notify", "stop"]}


class Alerts(Listening):
    """What Prometheus says of alerts: those in ``firing``, those in ``lingering`` without their condition."""

    def __init__(self, port: int) -> None:
        self.firing: list[Labels] = []
        self.lingering: list[Labels] = []
        self.status = 200
        this = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                ended = {"keepFiringSince": "2026-01-01T00:00:00Z"}
                alerts = [{"labels": each, "state": "firing"} for each in this.firing]
                alerts += [{"labels": each, "state": "firing", **ended} for each in this.lingering]
                self.send_response(this.status)
                self.end_headers()
                self.wfile.write(json.dumps({"data": {"alerts": alerts}}).encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Say nothing."""

        super().__init__(Handler, port)


class Around:
    """Everything around the bridge, and the bridge itself.

    Args:
        folder: An empty folder for all of it.
        settings: More of `actions` in config.yaml; by default a stop, announced for two seconds.
        version: Of Alertmanager.
    """

    def __init__(self, folder: Path, version: str = "0.31", **settings: Any) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self.runs.mkdir()
        self.sink, self.robot = WebhookSink(), WeCom()
        self.robot.fault = "busy"  # so that every metric has samples
        (folder / "robot").write_text(self.robot.url)
        actions = {"dry_run": False, "veto": "2s", "policies": [EXPLOSION], **settings}
        ports = {name: free_port() for name in Ports.model_fields}
        self.config_file = folder / "config.yaml"
        self.config_file.write_text(
            yaml.safe_dump(
                {
                    "runs": {"path": str(self.runs)},
                    "discovery": {"ray": None},
                    "ports": ports,
                    "receivers": [
                        {"name": "sink", "webhook": {"url": self.sink.url}},
                        {"name": "chat", "wecom": {"url_file": str(folder / "robot")}},
                    ],
                    "actions": actions,
                    **yaml.safe_load(QUICK),
                }
            )
        )
        state = State(folder / "state")
        state.make_password()
        parts = frozenset({"exporter", "prometheus", "alertmanager", "bridge"})
        generate(self.config_file, state.rendered, place=partial(state.deployment, parts=parts))
        self.config = load(self.config_file)
        stack = native.Stack(self.config, state, self.runs, file=self.config_file)
        self.state, self.data = state, state.data("bridge")
        self.exporter, self.bridge = server(stack.exporter()), server(stack.bridge())
        self.prometheus = Alerts(self.config.ports.prometheus)
        rendered = state.rendered / "alertmanager/generated"
        # The first that names receivers in its metrics, as `make up` has it do.
        options = () if version == "0.25" else ("--enable-feature=receiver-name-in-metrics",)
        port = self.config.ports.alertmanager
        self.alertmanager = AlertmanagerServer(version, rendered, port=port, options=options)
        self.url = f"http://{self.config.address('bridge')}"
        self.trainers: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def up(self) -> Iterator[Around]:
        with ExitStack() as parts:
            parts.callback(self._end)
            for part in (
                self.sink,
                self.robot,
                self.prometheus,
                self.alertmanager,
                self.exporter,
                self.bridge,
            ):
                parts.enter_context(part)  # type: ignore[arg-type]
            yield self

    def train(self, name: str, *how: str, wrapped: bool = True) -> subprocess.Popen[bytes]:
        """Start a trainer, and wait until the run exporter shows its present attempt."""
        command = [sys.executable, "-c", TRAINER, *how]
        log = self.runs / f"{name}.log"
        if wrapped:
            place = ("--runs", str(self.runs), "--name", name, "--")
            command = [sys.executable, "-m", "stepwatch", "run", *place, *command]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=CHECKOUT)
        else:
            with log.open("ab") as output:
                process = subprocess.Popen(command, stdout=output, start_new_session=True)
        self.trainers.append(process)
        eventually(lambda: self.shown(name, str(log) if wrapped else None), seen=self.log)
        return process

    def shown(self, name: str, log: str | None) -> bool:
        page = http_client.read(f"http://{self.config.address('exporter')}/api/v1/runs") or '{"runs": []}'
        known = {run["run"]: run["log"] for run in json.loads(page)["runs"]}
        return name in known and known[name] == log and (log is None or self.launch(name).held is True)

    def fire(self, run: str, name: str = "KLExplosion") -> Labels:
        """Have an alert fire since now; returns its labels."""
        time.sleep(0.01)  # after the attempt began
        labels = alert(name, run, topic="kl")
        self.prometheus.firing = [each for each in self.prometheus.firing if each != labels] + [labels]
        post(self.alertmanager, labels)
        return labels

    def silence(self, run: str, seconds: float = 3600) -> str:
        """Silence the alerts of a run; returns the silence's id."""
        now = datetime.now(timezone.utc)
        matcher = {"name": "run", "value": run, "isRegex": False, "isEqual": True}
        times = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(seconds=seconds)).isoformat()}
        wanted = {"matchers": [matcher], **times, "createdBy": "a person", "comment": "mine"}
        answer = http_client.post(f"{self.alertmanager.url}/api/v2/silences", wanted)
        assert answer is not None
        assert answer.done, answer
        return str(json.loads(answer.text)["silenceID"])

    def expire(self, silence: str) -> None:
        """End a silence."""
        url = f"{self.alertmanager.url}/api/v2/silence/{silence}"
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=10).close()

    def launch(self, run: str) -> launch.Launch:
        found = launch.read(self.runs / f"{run}.log")
        assert found is not None
        return found

    def known(self, run: str) -> list[dict[str, Any]]:
        """The actions on a run, as the service shows them."""
        page = http_client.read(f"{self.url}/api/v1/actions") or '{"actions": []}'
        return [each for each in json.loads(page)["actions"] if each["run"] == run]

    def wait_closed(self, run: str, outcome: str) -> dict[str, Any]:
        """Wait until an action on a run is closed so, and what came of it was sent; return it."""
        eventually(lambda: any(each["outcome"] == outcome for each in self.known(run)), seen=self.log)
        return next(each for each in self.known(run) if each["outcome"] == outcome)

    def wait_pending(self, run: str) -> dict[str, Any]:
        """Wait for the announcement of a step, and return its action."""
        eventually(lambda: any("unless" in each["state"] for each in self.known(run)), seen=self.log)
        return next(each for each in self.known(run) if "unless" in each["state"])

    def wait_message(self, name: str, run: str) -> dict[str, str]:
        """Wait for a message; return its texts."""
        eventually(lambda: self.messages(name, run), seen=self.log)
        (annotations,) = self.messages(name, run)
        return annotations

    def messages(self, name: str, run: str) -> list[dict[str, str]]:
        """The texts of alerts of that name that the receiver got."""
        return [
            each["annotations"]
            for message in list(self.sink.received)
            for each in message.alerts
            if (each["labels"]["alertname"], each["labels"]["run"]) == (name, run)
        ]

    def audit(self, run: str) -> list[tuple[str, str]]:
        """Event, and step or reason, of each line of the audit log that is about a run."""
        file = self.data / "audit.jsonl"
        entries = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        ids = {each["action"] for each in entries if each["event"] == "opened" and each["run"] == run}
        return [
            (each["event"], each.get("step") or each.get("reason") or "")
            for each in entries
            if each["action"] in ids
        ]

    def log(self) -> str:
        page = http_client.read(f"{self.url}/api/v1/actions")
        return f"{page} {self.sink.summary()} {self.bridge.log.read_text()[-2000:]}"

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `python -m stepwatch actions` on this stack."""
        env = {**os.environ, "STEPWATCH_STATE": str(self.state.folder)}
        line = [sys.executable, "-m", "stepwatch", "actions", "--config", str(self.config_file), *words]
        return subprocess.run(line, capture_output=True, text=True, env=env, cwd=CHECKOUT, check=False)

    def ask(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> tuple[int, str]:
        reply = ask(self.config.address("bridge"), path, method, body, **headers)
        return reply.status, reply.body.decode()

    def _end(self) -> None:
        for each in self.trainers:
            end(each)
