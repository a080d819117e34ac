"""Queries other parts about an alert when its message is sent, and creates silences for its reader."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from exporter.drawing import png
from exporter.drawing.chart import Chart, Curve
from exporter.notifier.outbox import Notification
from exporter.notifier.wording import NOTHING_KNOWN, Known, silenced_by
from exporter.watchdog.client import Client, UnreachableError

logger = logging.getLogger(__name__)

SILENCE_HOURS = 2
_SECONDS = 3.0
"""That an answer may take: a message goes out without it."""
_SHOWN_STEPS = 0.5
"""Share of a run's steps, its latest, that a picture shows."""


class StackClient:
    """Queries the other parts. Missing answers are omitted from a message.

    Args:
        prometheus: URL of Prometheus.
        alertmanager: URL of Alertmanager.
        exporter: URL of the run exporter.
        password_file: Of the first two.
        signals: The signal that each alert on runs is about, by the alert's name.
    """

    def __init__(
        self,
        prometheus: str,
        alertmanager: str,
        exporter: str,
        password_file: Path | None,
        signals: Mapping[str, str],
    ) -> None:
        password = str(password_file) if password_file else None
        self._prometheus = Client(prometheus, password, _SECONDS)
        self._alertmanager = Client(alertmanager, password, _SECONDS)
        self._exporter = Client(exporter, None, _SECONDS)
        self._signals = signals

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

    def picture(self, notification: Notification) -> bytes | None:
        """Return the curve of the first alert with its limits as a PNG, ``None`` if there is none to draw."""
        alert = (notification.firing or notification.alerts)[0]
        run, signal = alert.labels.get("run", ""), self._signals.get(alert.name, "")
        if not (run and signal and alert.firing):
            return None
        path = f"/api/v1/runs/{quote(run, safe='', errors='replace')}/series?signal={quote(signal)}"
        try:
            chart = _chart(self._json(self._exporter, path), alert.name, signal)
            return png.draw(chart) if chart else None
        except (LookupError, TypeError, ValueError, AttributeError):
            logger.exception("The curve of %s cannot be drawn.", signal)
            return None

    def silence(self, labels: Mapping[str, str], client: str) -> str:
        """Silence what these labels name for two hours.

        Returns:
            The error; empty on success.
        """
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


def _chart(page: Any, alert: str, signal: str) -> Chart | None:
    if not page:
        return None
    points = [(int(step), float("nan") if value is None else float(value)) for step, value in page["points"]]
    if not any(math.isfinite(value) for _, value in points):
        return None
    last = max(step for step, _ in points)
    first = min(step for step, _ in points)
    first = max(first, min(last - 20, last - int((last - first) * _SHOWN_STEPS)))

    def curve(name: str, places: list[tuple[int, float]], severity: str = "") -> Curve | None:
        shown = tuple(
            (step, value) for step, value in places if first <= step <= last and math.isfinite(value)
        )
        return Curve(name, (shown,), severity) if shown else None

    limits = [
        curve(
            each["name"],
            [(int(step), float(value)) for step, value in each["points"] if value is not None],
            each["severity"],
        )
        for each in page["limits"]
        if each["alert"] == alert
    ]
    drawn = curve(signal, points)
    if drawn is None:
        return None
    there = tuple(limit for limit in limits if limit)
    return Chart(signal, "", page["unit"], None, None, first, last, (drawn,), there, ())
