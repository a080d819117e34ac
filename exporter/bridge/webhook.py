"""Alertmanager's webhook: its document, and who may post one."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.credentials import authorization
from exporter.engine_client import timestamp
from exporter.http.message import Answer, text

VERSION = "4"
"""Of the webhook's document, since Alertmanager 0.7."""


class PayloadError(ValueError):
    """Raised when a body is not what Alertmanager posts."""


@dataclass(frozen=True)
class Alert:
    """One alert of a group; ``begun`` and ``ended`` are Unix seconds."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    firing: bool
    begun: float
    ended: float
    fingerprint: str

    @property
    def name(self) -> str:
        """Its ``alertname``."""
        return self.labels.get("alertname", "")


@dataclass(frozen=True)
class Notification:
    """A change of a group.

    ``receiver`` is Alertmanager's name, ``group`` its key of the group. ``change`` is the same for the same
    alerts in the same state. ``labels`` are those that all alerts share. ``truncated`` alerts were left out
    by Alertmanager.
    """

    receiver: str
    group: str
    change: str
    labels: Mapping[str, str]
    alerts: tuple[Alert, ...]
    truncated: int

    @property
    def firing(self) -> tuple[Alert, ...]:
        """The alerts that fire."""
        return tuple(alert for alert in self.alerts if alert.firing)

    @property
    def state(self) -> str:
        """``resolved``, or the severity."""
        return self.labels.get("severity", "info") if self.firing else "resolved"


def parse(body: bytes) -> Notification:
    """Return what a webhook's body says. Raises PayloadError."""
    try:
        document = json.loads(body)
        version = document["version"]
        alerts = [
            Alert(
                _texts(each["labels"]),
                _texts(each.get("annotations")),
                each["status"] == "firing",
                timestamp(each["startsAt"]),
                timestamp(each["endsAt"]),
                str(each["fingerprint"]),
            )
            for each in document["alerts"]
        ]
        members = sorted(f"{each.fingerprint} {each.firing} {each.begun}" for each in alerts)
        notification = Notification(
            # Alertmanager writes it as a regular expression: `\(test\) chat`. Names have no backslash.
            receiver=str(document["receiver"]).replace("\\", ""),
            group=str(document["groupKey"]),
            change=hashlib.sha256("\n".join(members).encode("utf-8", "backslashreplace")).hexdigest(),
            labels=_texts(document.get("commonLabels")),
            alerts=tuple(alerts),
            truncated=int(document.get("truncatedAlerts") or 0),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise PayloadError(f"{type(problem).__name__}: {problem}") from None
    if version != VERSION:
        raise PayloadError(f"it is of version {str(version)[:20]!r}")
    if not alerts:
        raise PayloadError("it has no alert")
    return notification


def _texts(values: Any) -> dict[str, str]:
    """Return texts that UTF-8 can hold: a lone surrogate of a log becomes a question mark."""
    texts = {str(name): str(value) for name, value in (values or {}).items()}
    return {name: text.encode("utf-8", "replace").decode() for name, text in texts.items()}


def refusal(headers: Mapping[str, str], password_file: Path | None) -> Answer | None:
    """Return the answer to a request that does not show the password of the stack's own Alertmanager."""
    try:
        password = password_file.read_text(encoding="ascii").strip() if password_file else ""
    except (OSError, ValueError):
        password = ""
    if not password:
        return text(
            "503 Service Unavailable", "No password is set. Fix: name its file with --password-file.\n"
        )
    if hmac.compare_digest(headers.get("authorization", "").encode(), authorization(password).encode()):
        return None
    words = "Only Stepwatch's Alertmanager may post alerts here. Expected: its password.\n"
    return text("401 Unauthorized", words, ("WWW-Authenticate", 'Basic realm="Stepwatch"'))
