"""Queries other parts about an alert when its message is sent, and creates silences for its reader."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from exporter.engine_client import Client, UnreachableError
from exporter.notifier.outbox import Notification
from exporter.notifier.wording import NOTHING_KNOWN, Known, silenced_by

SILENCE_HOURS = 2
_SECONDS = 3.0  # that an answer may take: a message goes out without it


class StackClient:
    """Queries the other parts, with one password. Missing answers are omitted from a message."""

    def __init__(self, prometheus: str, alertmanager: str, password_file: Path | None) -> None:
        password = str(password_file) if password_file else None
        self._prometheus = Client(prometheus, password, _SECONDS)
        self._alertmanager = Client(alertmanager, password, _SECONDS)

    def known(self, notification: Notification) -> Known:
        """Return the step of a notification's run, and what else fires for it."""
        run = notification.labels.get("run", "")
        if not run or notification.is_test:
            return NOTHING_KNOWN
        matcher = f"run={json.dumps(run, ensure_ascii=False)}"
        steps = self._json(
            self._prometheus, f"/api/v1/query?{urlencode({'query': f'max(rl_step{{{matcher}}})'})}"
        )
        query = urlencode({"filter": matcher, "active": "true", "silenced": "false", "inhibited": "false"})
        return Known(
            _step(steps), _others(self._json(self._alertmanager, f"/api/v2/alerts?{query}"), notification)
        )

    def silence(self, labels: Mapping[str, str], client: str) -> str:
        """Silence what these labels name for two hours; returns the error, empty on success."""
        now = datetime.fromtimestamp(time.time(), timezone.utc)
        document = {
            "matchers": [
                {"name": name, "value": value, "isRegex": False, "isEqual": True}
                for name, value in silenced_by(labels).items()
            ],
            "startsAt": now.isoformat(),
            "endsAt": (now + timedelta(hours=SILENCE_HOURS)).isoformat(),
            "createdBy": "notifier",
            "comment": f"From the link in a notification, requested by {client}",
        }
        try:
            reply = self._alertmanager.post("/api/v2/silences", "application/json", json.dumps(document))
        except UnreachableError as problem:
            return f"Alertmanager does not answer: {problem}"
        return "" if reply.status == 200 else f"Alertmanager refuses it: {reply.body[:200]}"

    @staticmethod
    def _json(client: Client, path: str) -> Any:
        try:
            reply = client.get(path)
            return json.loads(reply.body) if reply.status == 200 else None
        except (UnreachableError, ValueError):
            return None


def _step(page: Any) -> str:
    try:
        return f"{float(page['data']['result'][0]['value'][1]):.0f}"
    except (LookupError, TypeError, ValueError):
        return ""


def _others(page: Any, notification: Notification) -> tuple[str, ...]:
    """Return the names of alerts that fire besides those of a notification, of which people are notified."""
    included = {alert.name for alert in notification.alerts}
    try:
        labels = [each["labels"] for each in page or ()]
        names = {each["alertname"] for each in labels if each.get("severity") in ("critical", "warning")}
    except (LookupError, TypeError, AttributeError):
        return ()
    return tuple(sorted(names - included))
