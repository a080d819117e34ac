"""What fires now, for those who have no page to look at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

PAGE, SILENCES = "/api/v2/alerts?active=true", "/api/v2/silences"
"""Of Alertmanager."""

SEVERITIES = ("critical", "warning", "info")


def firing(text: str | None, silences: str | None) -> list[str]:
    """What is said of each alert on the first of these pages, the worst first; none without an answer."""
    alerts = [alert for alert in json.loads(text or "[]") if alert["labels"]["alertname"] != "Watchdog"]
    ends = {silence["id"]: _time(silence["endsAt"]) for silence in json.loads(silences or "[]")}
    names = {alert["fingerprint"]: alert["labels"]["alertname"] for alert in alerts}
    return [_line(alert, names, ends) for alert in sorted(alerts, key=_order)]


def _order(alert: dict[str, Any]) -> tuple[bool, int, str]:
    severity = alert["labels"].get("severity", "info")
    worst = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
    return bool(alert["status"]["inhibitedBy"]), worst, alert["startsAt"]


def _line(alert: dict[str, Any], names: Mapping[str, str], ends: Mapping[str, datetime]) -> str:
    labels, since = alert["labels"], _time(alert["startsAt"])
    words = [labels.get("severity", ""), labels["alertname"], labels.get("run", ""), f"since {since:%H:%M}"]
    muted = _muted(alert["status"], names, ends)
    notes = alert["annotations"]
    action = f"\n    First: {notes['action']}." if "action" in notes else ""
    return f"{'  '.join(filter(None, words))}{muted}: {notes.get('description', '')}{action}"


def _muted(status: dict[str, Any], names: Mapping[str, str], ends: Mapping[str, datetime]) -> str:
    """Why an alert sends no notification, and until when; empty if it does."""
    if not status["silencedBy"]:
        causes = sorted({names.get(each, "another alert") for each in status["inhibitedBy"]})
        return f" (muted by {', '.join(causes)})" if causes else ""
    end = max((ends[each] for each in status["silencedBy"] if each in ends), default=None)
    if end is None:
        return " (silenced)"
    today = end.date() == datetime.now().astimezone().date()
    return f" (silenced until {end:%H:%M})" if today else f" (silenced until {end:%H:%M, %d %b})"


def _time(text: str) -> datetime:
    """A time of Alertmanager's API, in this machine's zone."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone()
