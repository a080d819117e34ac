"""What Prometheus, Alertmanager and the run exporter say of an alert and its run at this moment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from exporter.bridge.webhook import Alert
from exporter.engine_client import Client, timestamp
from exporter.http_client import NoAnswerError
from exporter.runs.files import launch

_SECONDS = 3.0
"""For an answer: Alertmanager waits ten for ours."""


class UnknownError(Exception):
    """Raised when a part does not answer, or not as it should; says which."""


class Silence(NamedTuple):
    """When a silence began and ended or will end (Unix seconds), and who created it."""

    begin: float
    end: float
    by: str


class Stack:
    """Asks the other parts by their URLs; each question is a new request."""

    def __init__(self, prometheus: str, alertmanager: str, exporter: str, password_file: Path | None) -> None:
        self._prometheus = Client(prometheus, password_file, _SECONDS)
        self._alertmanager = Client(alertmanager, password_file, _SECONDS)
        self._exporter = Client(exporter, None, _SECONDS)

    def log(self, run: str) -> Path | None:
        """The log of a run. Raises UnknownError."""
        runs = _json(self._exporter, "/api/v1/runs")["runs"]
        found = next((each["log"] for each in runs if each["run"] == run), None)
        return Path(found) if found else None

    def launch(self, run: str) -> launch.Launch | None:
        """The last attempt of a run that `stepwatch run` started, else ``None``. Raises UnknownError."""
        log = self.log(run)
        return launch.read(log) if log else None

    def state(self, fingerprint: str) -> str:
        """Alertmanager's state of an alert: active, suppressed or unprocessed; empty without the alert.

        Raises:
            UnknownError: Alertmanager does not answer.
        """
        alerts = _json(self._alertmanager, "/api/v2/alerts")
        return next((each["status"]["state"] for each in alerts if each["fingerprint"] == fingerprint), "")

    def alertmanager_started(self) -> float:
        """When Alertmanager started, in Unix seconds. Raises UnknownError."""
        return timestamp(_json(self._alertmanager, "/api/v2/status")["uptime"])

    def silences(self, labels: Mapping[str, str]) -> Iterator[Silence]:
        """Yield the silences of an alert with these labels, ended ones too. Raises UnknownError."""
        for each in _json(self._alertmanager, "/api/v2/silences"):
            if all(_fits(matcher, labels) for matcher in each["matchers"]):
                yield Silence(timestamp(each["startsAt"]), timestamp(each["endsAt"]), each["createdBy"])

    def holds(self, alert: Alert) -> bool:
        """Whether Prometheus says that an alert fires and its condition holds. Raises UnknownError.

        The time for which `notify.keep_firing_for` extends an alert does not count.
        """
        return any(
            rule["state"] == "firing"
            and not rule.get("keepFiringSince")
            and rule["labels"].get("alertname") == alert.name
            # Of another cluster's run of that name Prometheus has the label itself; its own is external.
            and "cluster" not in rule["labels"]
            and rule["labels"].items() <= alert.labels.items()
            for rule in _json(self._prometheus, "/api/v1/alerts")["data"]["alerts"]
        )

    def post(self, alerts: list[dict[str, Any]]) -> bool:
        """Post alerts to Alertmanager. Returns whether it accepted them."""
        try:
            return self._alertmanager.post("/api/v2/alerts", alerts).status == 200
        except NoAnswerError:
            return False


def _fits(matcher: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether labels fit a matcher of a silence."""
    value = labels.get(matcher["name"], "")
    if not matcher["isRegex"]:
        return bool((value == matcher["value"]) is matcher.get("isEqual", True))
    return bool(re.fullmatch(matcher["value"], value, re.DOTALL)) is bool(matcher.get("isEqual", True))


def _json(client: Client, path: str) -> Any:
    try:
        reply = client.get(path)
        if reply.status != 200:
            raise UnknownError(f"{client.address} answers {reply.status}")
        return json.loads(reply.body)
    except (NoAnswerError, ValueError) as problem:
        raise UnknownError(f"{client.address}: {problem}") from None
