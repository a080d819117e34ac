"""Threads that ask other programs and look at files, so that no page waits for a network or a disk."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from threading import Event, Thread
from typing import Any

import orjson

from exporter.installation import adapt
from exporter.runs.overview.models import Firing, RunAction
from exporter.runs.remote import web

INTERVAL_SECONDS = 5.0
ANSWER_SECONDS = 5.0
SILENT_SECONDS = 30.0
"""Alertmanager's last answer counts for so long; a restart of the watchdog takes a second or two."""
LARGEST_ANSWER = 2 << 20


class Poller(ABC):
    """Calls ``poll`` again and again from ``start`` on, in a thread of its own, if it is ``enabled``."""

    def __init__(self, name: str, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._wake, self._stop = Event(), Event()
        # A daemon: a server or a disk that hangs must not keep the exporter from ending.
        self._thread = Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def poll(self) -> float:
        """Poll once; returns the seconds until the next time."""

    def start(self) -> None:
        """Begin to poll, in the background."""
        if self._enabled:
            self._thread.start()

    def wake(self) -> None:
        """Poll at once."""
        self._wake.set()

    def stop(self) -> None:
        """Poll no more; a call that is under way ends by itself."""
        self._stop.set()
        self._wake.set()

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stop.is_set()

    def _run(self) -> None:
        while not self.stopped:
            self._wake.wait(self.poll())
            self._wake.clear()


class Silences(Poller):
    """Alertmanager's silences and inhibitions of alerts that fire; without a URL, none.

    ``external_labels`` are those of Prometheus: alerts that lack one have it when they are sent.
    """

    def __init__(self, url: str | None, external_labels: Mapping[str, str] | None = None) -> None:
        super().__init__("silences", enabled=bool(url))
        self._external_labels = external_labels or {}
        self._url = (url or "").rstrip("/")
        self._ends: Mapping[frozenset[tuple[str, str]], float] = {}
        self._causes: Mapping[frozenset[tuple[str, str]], str] = {}
        self._answered = time.monotonic()

    def mark(self, alerts: Iterable[Firing]) -> tuple[Firing, ...]:
        """Return the alerts: silenced ones with when that ends, inhibited ones with the cause."""
        ends, causes, now = self._ends, self._causes, time.time()

        def marked(alert: Firing) -> Firing:
            sent = frozenset({**self._external_labels, **dict(alert.labels)}.items())
            end = ends.get(sent, 0.0)
            return replace(
                alert,
                silenced_until=end if end > now else alert.silenced_until,
                inhibited_by=causes.get(sent, ""),
            )

        return tuple(map(marked, alerts))

    def poll(self) -> float:
        """Ask Alertmanager; returns the seconds until the next time."""
        try:
            alerts, silences = self._get("alerts"), self._get("silences")
            # Python 3.10 does not read Z for UTC.
            ends = {
                silence["id"]: datetime.fromisoformat(silence["endsAt"].replace("Z", "+00:00")).timestamp()
                for silence in silences
            }
            self._ends = {
                frozenset(alert["labels"].items()): max(ends[each] for each in known)
                for alert in alerts
                if (known := ends.keys() & alert["status"]["silencedBy"])
            }
            names = {alert["fingerprint"]: alert["labels"]["alertname"] for alert in alerts}
            self._causes = {
                frozenset(alert["labels"].items()): names.get(inhibiting[0], "another alert")
                for alert in alerts
                if (inhibiting := alert["status"].get("inhibitedBy"))
            }
            self._answered = time.monotonic()
        except (web.PollError, ValueError, LookupError, TypeError, AttributeError):
            if time.monotonic() - self._answered > SILENT_SECONDS:
                self._ends, self._causes = {}, {}  # they may have been deleted
        return INTERVAL_SECONDS

    def _get(self, what: str) -> Any:
        answer = web.get(f"{self._url}/api/v2/{what}", {}, ANSWER_SECONDS, most=LARGEST_ANSWER)
        return orjson.loads(answer.body)


class Watchdog(Poller):
    """The watchdog's ``findings``: a text for each fault, or why there is no answer; without a URL, none."""

    def __init__(self, url: str | None) -> None:
        super().__init__("watchdog", enabled=bool(url))
        self.findings: tuple[str, ...] = ()
        self._url = f"{(url or '').rstrip('/')}/api/v1/findings"
        self._answered = time.monotonic()

    def poll(self) -> float:
        """Ask the watchdog; returns the seconds until the next time."""
        try:
            answer = web.get(self._url, {}, ANSWER_SECONDS, most=LARGEST_ANSWER)
            found = orjson.loads(answer.body)["findings"]
            self.findings = tuple(f"{each['summary']}. {each['description']}" for each in found)
            self._answered = time.monotonic()
        except (web.PollError, ValueError, KeyError, TypeError) as problem:
            if time.monotonic() - self._answered > SILENT_SECONDS:
                self.findings = (adapt(f"The watchdog does not answer: {problem} Fix: `make up`."),)
        return INTERVAL_SECONDS


class Actions(Poller):
    """What the circuit breaker does and did, as it says; without a URL, nothing.

    Args:
        url: Its own.
        link: Where people open its page.
    """

    def __init__(self, url: str | None, link: str) -> None:
        super().__init__("actions", enabled=bool(url))
        self.found: tuple[RunAction, ...] = ()
        self._url, self._link = f"{(url or '').rstrip('/')}/api/v1/actions", link.rstrip("/")

    def poll(self) -> float:
        """Ask it; returns the seconds until the next time. Without an answer the last one stays."""
        try:
            answer = web.get(self._url, {}, ANSWER_SECONDS, most=LARGEST_ANSWER)
            self.found = tuple(
                RunAction(
                    run=each["run"],
                    alert=each["alert"],
                    steps=", ".join(each["steps"]) + " (dry run)" * each["dry_run"],
                    state=each["state"],
                    opened=float(each["opened"]),
                    open=not each["outcome"],
                    page=self._link + each["page"],
                )
                for each in orjson.loads(answer.body)["actions"]
            )
        except (web.PollError, ValueError, LookupError, TypeError):
            pass
        return INTERVAL_SECONDS
