"""Findings, as text and as alerts for Alertmanager."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from exporter.translatable import Text

ALERT = "AlertingBroken"


ALERTMANAGER = "alertmanager"
"""The name of findings about it, which cannot be posted."""

HOLD_SECONDS = 60.0
"""How long an alert continues after its fault. Until then it inhibits the alerts that the fault caused, such
as ExporterDown; Prometheus needs some of that time to resolve them."""

EXPIRY_SECONDS = 120.0
"""After which Alertmanager resolves what is not posted again: the watchdog may die."""


class Finding(NamedTuple):
    """A fault: its kind, such as ``disk_full``, of a mount point or a part, and the parts that it stops."""

    fault: str
    name: str
    summary: Text
    description: Text
    parts: tuple[str, ...] = ()


class Known(NamedTuple):
    """A finding, with the times when it was first and last seen (Unix seconds)."""

    finding: Finding
    since: float
    seen: float

    def is_over(self, now: float) -> bool:
        """Whether its alert ends."""
        return now - self.seen >= HOLD_SECONDS


class Findings:
    """All that is wrong (``present``, the first to come first), and what was until a moment ago."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.severity: str = settings["severity"]
        self.present: tuple[Known, ...] = ()
        self._settings = settings
        self._known: dict[tuple[str, str], Known] = {}

    def update(self, found: Iterable[Finding], now: float) -> list[Finding]:
        """Record the findings of a check at this Unix time. Returns those resolved since the last check."""
        before = {(known.finding.fault, known.finding.name): known.finding for known in self.present}
        for finding in found:
            key = finding.fault, finding.name
            since = self._known[key].since if key in self._known else now
            self._known[key] = Known(finding, since, now)
            before.pop(key, None)
        present = [known for known in self._known.values() if known.seen == now]
        self.present = tuple(sorted(present, key=lambda known: known.since))
        return list(before.values())

    def alerts(self, now: float) -> list[dict[str, Any]]:
        """Return the alerts to post to Alertmanager at this time: current and ended ones."""
        known = (known for known in self._known.values() if known.finding.name != ALERTMANAGER)
        return [self._alert(each, now) for each in known]

    def forget(self, now: float) -> None:
        """Drop ended findings after Alertmanager accepted their end."""
        self._known = {key: known for key, known in self._known.items() if not known.is_over(now)}

    def _alert(self, known: Known, now: float) -> dict[str, Any]:
        finding, texts = known.finding, self._settings.get("texts") or {}
        end = now if known.is_over(now) else now + EXPIRY_SECONDS
        return {
            "labels": {
                **(self._settings.get("labels") or {}),
                "severity": self.severity,
                "topic": "stack",
                "alertname": ALERT,
                "fault": finding.fault,
                "name": finding.name,
            },
            "annotations": {
                "summary": finding.summary.translated(texts),
                "description": finding.description.translated(texts),
                **self._settings["annotations"],
            },
            "startsAt": datetime.fromtimestamp(known.since, timezone.utc).isoformat(),
            "endsAt": datetime.fromtimestamp(end, timezone.utc).isoformat(),
            "generatorURL": self._settings["generator"],
        }


def size(count: float) -> str:
    """Return a number of bytes in words, in units of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class Timer:
    """Measures for how long something holds, in seconds of the steady clock."""

    _since: float | None = None

    def lasts(self, holds: object) -> float:
        """Return for how long it has held without a break; 0 if it does not hold."""
        now = time.monotonic()
        if not holds:
            self._since = None
        elif self._since is None:
            self._since = now
        return 0.0 if self._since is None else now - self._since
