"""A thread that asks Alertmanager which alerts are silenced, and until when, so that no page waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from threading import Event, Thread
from typing import Any

import orjson

from exporter.runs.overview.models import Firing
from exporter.runs.remote import web

INTERVAL_SECONDS = 5.0
ANSWER_SECONDS = 5.0
SILENT_SECONDS = 30.0
"""What Alertmanager said is forgotten so long after its last answer: the silences may have been deleted."""
LARGEST_ANSWER = 2 << 20


class Silences:
    """The silences of alerts that fire; asked from ``start`` on, if there is an Alertmanager."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._ends: Mapping[frozenset[tuple[str, str]], float] = {}
        self._answered = time.monotonic()
        self._stop = Event()

    def start(self) -> None:
        """Begin to ask, in the background."""
        if self._url:
            Thread(target=self._run, args=(self._url.rstrip("/"),), name="silences", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def mark(self, alerts: Iterable[Firing]) -> tuple[Firing, ...]:
        """Return the alerts, those that are silenced with the time at which that ends."""
        ends, now = self._ends, time.time()
        return tuple(
            replace(alert, silenced_until=end) if (end := ends.get(alert.labels, 0.0)) > now else alert
            for alert in alerts
        )

    def _run(self, url: str) -> None:
        while not self._stop.is_set():
            try:
                self._ends = _ends(_asked(f"{url}/api/v2/alerts"), _asked(f"{url}/api/v2/silences"))
                self._answered = time.monotonic()
            except (web.PollError, ValueError, LookupError, TypeError, AttributeError):
                if time.monotonic() - self._answered > SILENT_SECONDS:
                    self._ends = {}
            self._stop.wait(INTERVAL_SECONDS)


def _asked(url: str) -> Any:
    return orjson.loads(web.get(url, {}, ANSWER_SECONDS, most=LARGEST_ANSWER).body)


def _ends(alerts: Any, silences: Any) -> dict[frozenset[tuple[str, str]], float]:
    """When the last silence of each silenced alert ends, by the alert's labels."""
    # Three digits of a second, and Z for UTC, which Python 3.10 does not read.
    ends = {
        silence["id"]: datetime.fromisoformat(silence["endsAt"].replace("Z", "+00:00")).timestamp()
        for silence in silences
    }
    return {
        frozenset(alert["labels"].items()): max(ends[each] for each in known)
        for alert in alerts
        if (known := ends.keys() & alert["status"]["silencedBy"])
    }
