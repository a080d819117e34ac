"""What Alertmanager posts: alerts that began to fire, or ended."""

from __future__ import annotations

import hmac
import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from exporter.actions.policy import Alert
from exporter.http.message import Answer, Request, text

USER = "stepwatch"
MOST_BODY = 4 << 20
"""Bytes of a request: Alertmanager sends the alerts of one group with all their texts."""


class WebhookError(Exception):
    """Raised when a request is refused; holds the answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class News(NamedTuple):
    """An alert, and whether it fires."""

    alert: Alert
    firing: bool


def news(request: Request, password_file: Path | None) -> list[News]:
    """Return what a request tells.

    Args:
        request: Of Alertmanager.
        password_file: Holds the password that it must show; read at each request.

    Raises:
        WebhookError: It does not show it, or is not what Alertmanager sends.
    """
    require(request.headers, password_file)
    try:
        return [_news(alert) for alert in json.loads(request.body)["alerts"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        words = "This is not a notification. Expected: the JSON of Alertmanager's webhook, version 4.\n"
        raise WebhookError(text("400 Bad Request", words)) from None


def require(headers: Mapping[str, str], file: Path | None) -> None:
    """Check that a request comes from Stepwatch's own Alertmanager.

    Raises:
        WebhookError: It does not show the password in this file, or there is none.
    """
    try:
        password = file.read_text(encoding="ascii").strip() if file else ""
    except (OSError, ValueError):
        password = ""
    if not password:
        words = "There is no password to compare with. Fix: name its file with --password-file.\n"
        raise WebhookError(text("503 Service Unavailable", words))
    expected = f"Basic {b64encode(f'{USER}:{password}'.encode()).decode()}"
    if not hmac.compare_digest(headers.get("authorization", "").encode(), expected.encode()):
        ask = ("WWW-Authenticate", 'Basic realm="Stepwatch"')
        words = "Only Stepwatch's Alertmanager may post alerts here. Expected: its password.\n"
        raise WebhookError(text("401 Unauthorized", words, ask))


def _news(alert: dict[str, Any]) -> News:
    labels = {str(name): str(value) for name, value in alert["labels"].items()}
    return News(
        Alert(str(alert["fingerprint"]), labels, timestamp(alert["startsAt"])), alert["status"] == "firing"
    )


def timestamp(time: str) -> float:
    """Return a time of Alertmanager's or Prometheus' API in Unix seconds.

    Raises:
        ValueError: It is none.
    """
    whole, dot, rest = time.replace("Z", "+00:00").partition(".")
    if dot:  # Go writes as many digits as it needs, Python 3.10 reads three or six
        digits = len(rest) - len(rest.lstrip("0123456789"))
        whole += f".{rest[:digits][:6]:0<6}{rest[digits:]}"
    return datetime.fromisoformat(whole).timestamp()
