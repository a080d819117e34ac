"""What fires now, for those who have no page to look at."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

PAGE = "/api/v2/alerts?active=true"
"""Of Alertmanager."""

SEVERITIES = ("critical", "warning", "info")


def firing(text: str | None) -> list[str]:
    """A line for each alert on that page, the worst first; none without an answer."""
    alerts = [alert for alert in json.loads(text or "[]") if alert["labels"]["alertname"] != "Watchdog"]
    return [_line(alert) for alert in sorted(alerts, key=_order)]


def _order(alert: dict[str, Any]) -> tuple[bool, int, str]:
    severity = alert["labels"].get("severity", "info")
    worst = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
    return bool(alert["status"]["inhibitedBy"]), worst, alert["startsAt"]


def _line(alert: dict[str, Any]) -> str:
    labels = alert["labels"]
    since = datetime.fromisoformat(alert["startsAt"].replace("Z", "+00:00")).astimezone()
    words = [labels.get("severity", ""), labels["alertname"], labels.get("run", ""), f"since {since:%H:%M}"]
    muted = " (muted)" if alert["status"]["state"] == "suppressed" else ""
    return f"{'  '.join(filter(None, words))}{muted}: {alert['annotations'].get('description', '')}"
