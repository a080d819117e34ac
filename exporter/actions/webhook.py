"""Alertmanager's webhook: alerts that started or stopped firing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from exporter.actions.policy import Alert
from exporter.http.message import Request, text
from exporter.http.service import WebhookError, require_password, timestamp

MOST_BODY = 4 << 20
"""Bytes of a request: Alertmanager sends the alerts of one group with all their texts."""


class NotifiedAlert(NamedTuple):
    """An alert, and whether it fires."""

    alert: Alert
    firing: bool


def notified_alerts(request: Request, password_file: Path | None) -> list[NotifiedAlert]:
    """Return the alerts of a request.

    Args:
        request: Of Alertmanager.
        password_file: Holds the password that it must show; read at each request.

    Raises:
        WebhookError: It does not show it, or is not what Alertmanager sends.
    """
    require_password(request.headers, password_file)
    try:
        return [_notified_alert(alert) for alert in json.loads(request.body)["alerts"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        words = "This is not a notification. Expected: the JSON of Alertmanager's webhook, version 4.\n"
        raise WebhookError(text("400 Bad Request", words)) from None


def _notified_alert(alert: dict[str, Any]) -> NotifiedAlert:
    labels = {str(name): str(value) for name, value in alert["labels"].items()}
    return NotifiedAlert(
        Alert(str(alert["fingerprint"]), labels, timestamp(alert["startsAt"])), alert["status"] == "firing"
    )
