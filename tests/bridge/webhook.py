"""What Alertmanager posts, and the bridge as a process that takes it from a test."""

from __future__ import annotations

import json
import os
import re
import sys
from base64 import b64encode
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from stepwatch.system import http_client
from stepwatch.system.environment import CHECKOUT
from tests.real import Server, free_port
from tests.real.asking import ask
from tests.real.robots import Robot

PASSWORD = "of-the-services"
PAST = datetime(2026, 1, 2, 15, 4, tzinfo=timezone.utc)

Alert = dict[str, Any]


def alert(name: str = "KLExplosion", run: str = "a", *, over: bool = False, **more: Any) -> Alert:
    """An alert as it stands in a webhook; ``more`` are labels, and ``annotations``."""
    said = more.pop("annotations", {})
    labels = {"alertname": name, "run": run, "severity": "critical", "topic": "kl", **more}
    labels = {label: value for label, value in labels.items() if value}
    return {
        "status": "resolved" if over else "firing",
        "labels": labels,
        "annotations": {
            "summary": "KL to the reference is exploding",
            "description": f"{run}: KL 1.2, limit 0.5, since step 40.",
            "action": "lower the learning rate",
            "runbook_url": "https://docs.example/runbook#klexplosion",
            **said,
        },
        "startsAt": PAST.isoformat(),
        "endsAt": PAST.replace(hour=16).isoformat() if over else "0001-01-01T00:00:00Z",
        "fingerprint": f"{abs(hash(tuple(sorted(labels.items())))):016x}",
    }


def payload(*alerts: Alert, receiver: str = "chat", group: str = "", truncated: int = 0) -> bytes:
    """What Alertmanager posts about a group."""
    shared = dict(alerts[0]["labels"])
    for each in alerts:
        shared = {name: value for name, value in shared.items() if each["labels"].get(name) == value}
    document = {
        "version": "4",
        "receiver": re.sub(r"([()])", r"\\\1", receiver),  # as Alertmanager does
        "status": "firing" if any(each["status"] == "firing" for each in alerts) else "resolved",
        "groupKey": group or f"{{}}:{json.dumps(shared, sort_keys=True)}",
        "truncatedAlerts": truncated,
        "groupLabels": shared,
        "commonLabels": shared,
        "commonAnnotations": {},
        "externalURL": "http://127.0.0.1:9093",
        "alerts": list(alerts),
    }
    return json.dumps(document).encode()


class Bridge:
    """A running bridge.

    Args:
        folder: An empty folder for its files.
        robots: Its receivers' robots, or URLs, by the receiver's name.
        kinds: The kinds of those that are URLs.
        secrets: What they sign with; by default what their robot wants.
    """

    def __init__(
        self,
        folder: Path,
        robots: Mapping[str, Robot | str],
        kinds: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "password").write_text(PASSWORD)
        settings = []
        for name, robot in robots.items():
            url = robot if isinstance(robot, str) else robot.url
            kind = (kinds or {})[name] if isinstance(robot, str) else robot.kind
            (folder / f"{name}.url").write_text(f"{url}\n")
            each = {"name": name, "kind": kind, "url_file": str(folder / f"{name}.url")}
            if secret := (secrets or {}).get(name, "" if isinstance(robot, str) else robot.secret):
                (folder / f"{name}.secret").write_text(secret)
                each["secret_file"] = str(folder / f"{name}.secret")
            settings.append(each)
        nowhere = {part: f"http://127.0.0.1:{free_port()}" for part in ("prometheus", "alertmanager")}
        document = {"password_file": str(folder / "password"), "robots": settings, **nowhere}
        (folder / "bridge.json").write_text(json.dumps(document))
        words = ("-m", "exporter.bridge", f"--config.file={folder}/bridge.json")
        command = (sys.executable, *words, f"--port={self.port}", f"--state-dir={folder}/state")
        env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "TZ": "UTC"}
        self.server = Server(command, f"{self.url}/-/healthy", cwd=CHECKOUT, env=env, log=folder / "log")
        self._open = ExitStack()
        self._robots = [robot for robot in robots.values() if not isinstance(robot, str)]

    def __enter__(self) -> Self:
        for robot in self._robots:
            self._open.enter_context(robot)
        self._open.enter_context(self.server)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def post(self, *alerts: Alert, to: str = "chat", **how: Any) -> tuple[int, str]:
        """Post a notification as Alertmanager does; returns the status and the words."""
        return self.send(payload(*alerts, **{"receiver": to, **how}), f"/alerts/{to}")

    def send(self, body: bytes, path: str = "/alerts/chat", password: str = PASSWORD) -> tuple[int, str]:
        login = b64encode(f"internal:{password}".encode()).decode()
        reply = ask(f"127.0.0.1:{self.port}", path, "POST", body, Authorization=f"Basic {login}")
        return reply.status, reply.body.decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels."""
        text = http_client.read(f"{self.url}/metrics") or ""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        samples = re.findall(rf"^stepwatch_bridge_{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for found, value in samples if all(each in found for each in wanted))
