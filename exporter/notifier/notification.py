"""Alertmanager's notification for one group of alerts, as stored in the queue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.http.service import timestamp

TEST = "TestAlert"
"""The alert of `make test-alert TO=name`."""
_TEST_ROUTE = "(test) "


class PayloadError(ValueError):
    """Raised when a body is not what Alertmanager sends."""


@dataclass(frozen=True)
class Alert:
    """One alert of a group; ``begun`` and ``ended`` are Unix seconds."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    firing: bool
    begun: float
    ended: float

    @property
    def name(self) -> str:
        """Its ``alertname``."""
        return self.labels.get("alertname", "")


@dataclass(frozen=True)
class Notification:
    """A change of a group.

    ``group`` is Alertmanager's key of it. ``change`` identifies which alerts fire and which ended. ``labels``
    are those that all alerts share. ``truncated`` alerts were left out by Alertmanager.
    """

    receiver: str
    group: str
    change: str
    labels: Mapping[str, str]
    alerts: tuple[Alert, ...]
    truncated: int = 0

    @property
    def firing(self) -> tuple[Alert, ...]:
        """The alerts that fire."""
        return tuple(alert for alert in self.alerts if alert.firing)

    @property
    def is_test(self) -> bool:
        """Whether `make test-alert TO=name` sent it."""
        return self.receiver.startswith(_TEST_ROUTE)

    @property
    def test(self) -> str:
        """The mark of a test, by which its sender finds it again."""
        return self.labels.get("test", "") if self.is_test else ""


def parse(body: bytes | str) -> tuple[Notification, str]:
    """Return what a webhook's body says, and the text to keep of it, which ``parse`` takes as well.

    Raises:
        PayloadError: It is not what Alertmanager sends.
    """
    try:
        document = json.loads(body)
        kept = [_kept(each) for each in document["alerts"]]
        notification = Notification(
            # Alertmanager writes it as a regular expression: `\(test\) chat`. Names have no backslash.
            receiver=str(document["receiver"]).replace("\\", ""),
            group=str(document["groupKey"]),
            change=_change(kept),
            labels=_texts(document.get("commonLabels")),
            alerts=tuple(map(_alert, kept)),
            truncated=int(document.get("truncatedAlerts") or 0),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise PayloadError(str(problem)) from None
    if not kept:
        raise PayloadError("it has no alert")
    text = {
        "receiver": notification.receiver,
        "groupKey": notification.group,
        "commonLabels": notification.labels,
        "truncatedAlerts": notification.truncated,
        "alerts": kept,
    }
    return notification, json.dumps(text, separators=(",", ":"))


def _kept(each: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: str(each[name]) for name in ("fingerprint", "status", "startsAt", "endsAt")},
        **{name: _texts(each.get(name)) for name in ("labels", "annotations")},
    }


def _alert(each: dict[str, Any]) -> Alert:
    return Alert(
        _texts(each["labels"]),
        _texts(each.get("annotations")),
        each["status"] == "firing",
        timestamp(str(each["startsAt"])),
        timestamp(str(each["endsAt"])),
    )


def _texts(values: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in (values or {}).items()}


def _change(alerts: list[dict[str, Any]]) -> str:
    """Return the same for the same alerts in the same state, in whichever order, and for nothing else."""
    members = sorted(f"{each['fingerprint']} {each['status']} {each['startsAt']}" for each in alerts)
    return hashlib.sha256("\n".join(members).encode("utf-8", "backslashreplace")).hexdigest()
