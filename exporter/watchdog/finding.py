"""What is wrong, in words and as Alertmanager takes it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

ALERT = "AlertingBroken"

ALERTMANAGER = "alertmanager"
"""The name of findings that cannot be posted."""

HOLD_SECONDS = 60.0
"""How long an alert outlasts its fault. The alerts that the fault caused, such as ExporterDown, are inhibited
until then; Prometheus needs some of that time to end them."""

EXPIRY_SECONDS = 120.0
"""After which Alertmanager resolves what is not posted again: the watchdog may die."""


class Finding(NamedTuple):
    """A fault.

    ``fault`` is its kind, such as ``disk_full``; ``name`` says of what: a mount point or a part of the stack.
    ``parts`` are the parts that it stops.
    """

    fault: str
    name: str
    summary: str
    description: str
    parts: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Tells it from others, whatever its text says now."""
        return self.fault, self.name


class Known(NamedTuple):
    """A finding, since when it is there, and until when it was seen (Unix seconds)."""

    finding: Finding
    since: float
    seen: float


class Findings:
    """All that is wrong, and what was until a moment ago.

    Args:
        severity: Of the alerts.
        annotations: Of each alert, besides summary and description.
        generator: The page that alerts lead to.
    """

    def __init__(self, severity: str, annotations: Mapping[str, str], generator: str) -> None:
        self.severity = severity
        self._annotations, self._generator = annotations, generator
        self._known: dict[tuple[str, str], Known] = {}
        self._present: tuple[Known, ...] = ()

    @property
    def present(self) -> tuple[Known, ...]:
        """What is wrong now, the first to come first."""
        return self._present

    def update(self, found: Iterable[Finding], now: float) -> list[Finding]:
        """Take the findings of a look at this Unix time. Returns those that are over since the last look."""
        before = {known.finding.key: known.finding for known in self._present}
        for finding in found:
            known = self._known.get(finding.key)
            self._known[finding.key] = Known(finding, known.since if known else now, now)
        fresh = (known for known in self._known.values() if known.seen == now)
        self._present = tuple(sorted(fresh, key=lambda known: known.since))
        for known in self._present:
            before.pop(known.finding.key, None)
        return list(before.values())

    def alerts(self, now: float) -> list[dict[str, Any]]:
        """What to post to Alertmanager at this time: what is wrong with others, and the end of what was."""
        return [
            self._alert(known, now) for known in self._known.values() if known.finding.name != ALERTMANAGER
        ]

    def forget(self, now: float) -> None:
        """Drop what ended, once Alertmanager has taken its end."""
        self._known = {key: known for key, known in self._known.items() if not _is_over(known, now)}

    def _alert(self, known: Known, now: float) -> dict[str, Any]:
        finding = known.finding
        return {
            "labels": {
                "alertname": ALERT,
                "severity": self.severity,
                "topic": "stack",
                "fault": finding.fault,
                "name": finding.name,
            },
            "annotations": {
                "summary": finding.summary,
                "description": finding.description,
                **self._annotations,
            },
            "startsAt": _iso(known.since),
            "endsAt": _iso(now if _is_over(known, now) else now + EXPIRY_SECONDS),
            "generatorURL": self._generator,
        }

    def document(self) -> list[dict[str, Any]]:
        """What is wrong now, as JSON shows it."""
        return [
            {**known.finding._asdict(), "severity": self.severity, "since": known.since}
            for known in self._present
        ]


def _is_over(known: Known, now: float) -> bool:
    return now - known.seen >= HOLD_SECONDS


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat()


def size(count: float) -> str:
    """A number of bytes in words, in units of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class Timer:
    """How long something has been so, in seconds of the steady clock."""

    def __init__(self) -> None:
        self._since: float | None = None

    def lasts(self, holds: object) -> float:
        """Returns for how long it has held without a break; 0 if it does not hold."""
        if not holds:
            self._since = None
            return 0.0
        now = time.monotonic()
        if self._since is None:
            self._since = now
        return now - self._since
