"""Findings, as text and as alerts for Alertmanager."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

ALERT, PEER_ALERT = "AlertingBroken", "PeerDown"

_PART = re.compile(r"\{(\w+)\}")


class Text(str):
    """An English text with its values, translatable.

    Args:
        text: The text, ``{name}`` in which becomes the part of that name.
        parts: Texts, or what is the same in each language.
    """

    text: str
    parts: Mapping[str, object]

    def __new__(cls, text: str, /, **parts: object) -> Text:  # noqa: PYI034  Self is Python 3.11's
        made = super().__new__(cls, _filled(text, parts))
        made.text, made.parts = text, parts
        return made

    def translated(self, texts: Mapping[str, str]) -> str:
        """Return it with the translation of each text; what has none stays English."""
        return _filled(
            texts.get(self.text, self.text),
            {
                name: part.translated(texts) if isinstance(part, Text) else part
                for name, part in self.parts.items()
            },
        )


def _filled(text: str, parts: Mapping[str, object]) -> str:
    return _PART.sub(lambda found: str(parts[found[1]]), text)


ALERTMANAGER = "alertmanager"
"""The name of findings about it, which cannot be posted."""

PEER_DOWN = "peer_down"
"""The fault of a stack on another machine, whose name is the finding's; an alert of its own."""

HOLD_SECONDS = 60.0
"""How long an alert continues after its fault. Until then it inhibits the alerts that the fault caused, such
as ExporterDown; Prometheus needs some of that time to resolve them."""

EXPIRY_SECONDS = 120.0
"""After which Alertmanager resolves what is not posted again: the watchdog may die."""


class Finding(NamedTuple):
    """A fault.

    ``fault`` is its kind, such as ``disk_full``; ``name`` says of what: a mount point or a part of the stack.
    ``parts`` are the parts that it stops.
    """

    fault: str
    name: str
    summary: Text
    description: Text
    parts: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its alert that are its own."""
        if self.fault == PEER_DOWN:
            return {"alertname": PEER_ALERT, "peer": self.name}
        return {"alertname": ALERT, "fault": self.fault, "name": self.name}


class Known(NamedTuple):
    """A finding, with the times when it was first and last seen (Unix seconds)."""

    finding: Finding
    since: float
    seen: float

    def is_over(self, now: float) -> bool:
        """Whether its alert ends."""
        return now - self.seen >= HOLD_SECONDS


class Findings:
    """All that is wrong (``present``, the first to come first), and what was until a moment ago.

    Args:
        severity: Of the alerts.
        annotations: Of each alert, besides summary and description.
        generator: The page that alerts lead to.
        texts: The words of alerts in another language, by the English ones.
        labels: The external labels of Prometheus, which its own alerts have.
        expiry: Seconds after which Alertmanager resolves what is not posted again.
    """

    def __init__(
        self,
        severity: str,
        annotations: Mapping[str, str],
        generator: str,
        texts: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        *,
        expiry: float = EXPIRY_SECONDS,
    ) -> None:
        self.severity = severity
        self.present: tuple[Known, ...] = ()
        self._annotations, self._generator, self._texts = annotations, generator, texts or {}
        self._labels, self._expiry = labels or {}, expiry
        self._known: dict[tuple[str, str], Known] = {}

    @classmethod
    def by_settings(cls, alert: Mapping[str, Any], expiry: float = EXPIRY_SECONDS) -> Findings:
        """Return an empty one, for alerts with these settings."""
        texts, labels = alert.get("texts"), alert.get("labels")
        return cls(alert["severity"], alert["annotations"], alert["generator"], texts, labels, expiry=expiry)

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
        return [
            self._alert(known, now)
            for known in self._known.values()
            if known.finding.name != ALERTMANAGER or known.finding.fault == PEER_DOWN
        ]

    def forget(self, now: float) -> None:
        """Drop ended findings after Alertmanager accepted their end."""
        self._known = {key: known for key, known in self._known.items() if not known.is_over(now)}

    def _alert(self, known: Known, now: float) -> dict[str, Any]:
        finding = known.finding
        end = now if known.is_over(now) else now + self._expiry
        return {
            "labels": {
                **self._labels,
                "severity": self.severity,
                "topic": "stack",
                **finding.labels,
            },
            "annotations": {
                "summary": finding.summary.translated(self._texts),
                "description": finding.description.translated(self._texts),
                **self._annotations,
            },
            "startsAt": datetime.fromtimestamp(known.since, timezone.utc).isoformat(),
            "endsAt": datetime.fromtimestamp(end, timezone.utc).isoformat(),
            "generatorURL": self._generator,
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

    def __init__(self) -> None:
        self._since: float | None = None

    def lasts(self, holds: object) -> float:
        """Return for how long it has held without a break; 0 if it does not hold."""
        now = time.monotonic()
        if not holds:
            self._since = None
        elif self._since is None:
            self._since = now
        return 0.0 if self._since is None else now - self._since
