"""A real Alertmanager with the rendered configuration: what is posted to it, and what a webhook gets."""

from __future__ import annotations

import json
import time
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tests.real import AlertmanagerServer, WebhookSink

QUICK = (
    "notify: {critical: {group_wait: 1s, group_interval: 1s}, warning: {group_wait: 1s, group_interval: 1s}}"
)
# Longer than a group waits and is looked at again: what has not come by then does not come.
QUIET_SECONDS = 3

Labels = dict[str, str]

HOST = {"instance": "a:9411"}


def alert(name: str, run: str = "", severity: str = "critical", topic: str = "reward", **more: str) -> Labels:
    labels = {"alertname": name, "run": run, "severity": severity, "topic": topic, **more}
    return {label: value for label, value in labels.items() if value}


def post(
    server: AlertmanagerServer, *alerts: Labels, over: bool = False, begun: datetime | None = None
) -> None:
    """Post alerts to Alertmanager as Prometheus does: firing since now or ``begun``, or (over) resolved."""
    now = datetime.now(timezone.utc)
    # One that began longer ago than its group waits would be sent at once, without waiting for company.
    times = {"endsAt": now} if over else {"startsAt": begun or now, "endsAt": now + timedelta(minutes=10)}
    body = [{"labels": labels, **{key: at.isoformat() for key, at in times.items()}} for labels in alerts]
    request = urllib.request.Request(
        f"{server.url}/api/v2/alerts", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=10).close()


def reported(sink: WebhookSink, status: str = "firing") -> set[tuple[str, str]]:
    """Name and run (or job and instance) of every alert that came."""
    return {
        (each["labels"]["alertname"], subject(each["labels"]))
        for message in sink.received
        for each in message.alerts
        if each["status"] == status
    }


def subject(labels: Labels) -> str:
    return labels.get("run") or " ".join(labels[name] for name in ("job", "instance") if name in labels)


class Route:
    """An Alertmanager on a folder of rendered configuration, and the webhook of its receiver."""

    def __init__(self, server: AlertmanagerServer, folder: Path, sink: WebhookSink) -> None:
        self.server = server
        self.folder = folder
        self.sink = sink

    def settle(self, *alerts: Labels, over: bool = False) -> set[tuple[str, str]]:
        """Post alerts; returns everything that was reported once nothing more comes."""
        post(self.server, *alerts, over=over)
        last = time.time()
        while time.time() - last < QUIET_SECONDS:
            time.sleep(0.1)
            last = max([last, *(message.at for message in self.sink.received)])
        return reported(self.sink)
