"""What other programs say of alerts and the stack, asked in threads, so that no page waits for a network."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from exporter import credentials
from exporter.runs.overview.models import Firing, RunAction
from exporter.runs.pages import web
from exporter.runs.pages.web import Poller

INTERVAL_SECONDS = 5.0
ANSWER_SECONDS = 5.0
SILENT_SECONDS = 30.0
"""Its last answer counts for so long; a restart takes a second or two."""
LARGEST_ANSWER = 2 << 20


class _Api(Poller):
    """Another program's JSON API, if it has a URL, asked as the user internal if there is a password."""

    def __init__(self, name: str, url: str | None, password_file: Path | None = None) -> None:
        super().__init__(name, enabled=bool(url))
        self._password_file = password_file
        self._url = (url or "").rstrip("/")
        self._answered = time.monotonic()

    def poll(self) -> float:
        """Ask; returns the seconds until the next time."""
        try:
            self._ask()
            self._answered = time.monotonic()
        except (web.PollError, OSError, ValueError, LookupError, TypeError, AttributeError) as problem:
            if time.monotonic() - self._answered > SILENT_SECONDS:
                self._lose(problem)
        return INTERVAL_SECONDS

    @abstractmethod
    def _ask(self) -> None:
        """Take what it says now; any exception of an answer of another form is caught."""

    def _lose(self, problem: Exception) -> None:
        """It has not answered for long."""

    def _get(self, path: str) -> Any:
        login = credentials.login(self._password_file)
        answer = web.get(f"{self._url}/{path}", login, ANSWER_SECONDS, most=LARGEST_ANSWER)
        return orjson.loads(answer.body)


class Silences(_Api):
    """Silences and inhibitions of alerts; Prometheus sends those with ``external_labels`` added."""

    def __init__(
        self,
        url: str | None,
        external_labels: Mapping[str, str] | None = None,
        password_file: Path | None = None,
    ) -> None:
        super().__init__("silences", url, password_file)
        self._external_labels = external_labels or {}
        self._ends: Mapping[frozenset[tuple[str, str]], float] = {}
        self._causes: Mapping[frozenset[tuple[str, str]], str] = {}

    def mark(self, alerts: Iterable[Firing]) -> tuple[Firing, ...]:
        """Return the alerts: silenced ones with when that ends, inhibited ones with the cause."""
        ends, causes, now = self._ends, self._causes, time.time()

        found: list[Firing] = []
        for alert in alerts:
            sent = frozenset({**self._external_labels, **dict(alert.labels)}.items())
            end = ends.get(sent, 0.0)
            until = end if end > now else alert.silenced_until
            found.append(replace(alert, silenced_until=until, inhibited_by=causes.get(sent, "")))
        return tuple(found)

    def _ask(self) -> None:
        alerts, silences = self._get("api/v2/alerts"), self._get("api/v2/silences")
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

    def _lose(self, _problem: Exception) -> None:
        self._ends, self._causes = {}, {}  # they may have been deleted


class Actions(_Api):
    """What the bridge says that it does and did; without an answer the last one stays."""

    def __init__(self, url: str | None) -> None:
        super().__init__("actions", url)
        self.found: tuple[RunAction, ...] = ()

    def _ask(self) -> None:
        self.found = tuple(
            RunAction(
                run=each["run"],
                alert=each["alert"],
                steps=", ".join(each["steps"]) + " (dry run)" * each["dry_run"],
                state=each["state"],
                opened=float(each["opened"]),
                open=not each["outcome"],
            )
            for each in self._get("api/v1/actions")["actions"]
        )
