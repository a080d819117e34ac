"""Queries Prometheus, Alertmanager and the run exporter, and posts to Alertmanager."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.actions import targets
from exporter.actions.policy import Alert, Attempt, Seen
from exporter.actions.targets import Configured, Target
from exporter.watchdog.client import Client, UnreachableError


class StackClient:
    """Queries the other parts; results of a ``refresh`` are used until the next.

    Args:
        prometheus: URL of Prometheus.
        alertmanager: URL of Alertmanager.
        exporter: URL of the run exporter.
        password_file: Of the first two.
        configured: Targets that config.yaml names.
    """

    def __init__(
        self,
        prometheus: str,
        alertmanager: str,
        exporter: str,
        password_file: Path | None,
        configured: Sequence[Configured] = (),
    ) -> None:
        password = str(password_file) if password_file else None
        self._prometheus = Client(prometheus, password)
        self._alertmanager = Client(alertmanager, password)
        self._exporter = Client(exporter)
        self._configured = configured
        self._rules: list[dict[str, Any]] | None = None
        self._sent: dict[str, str] | None = None
        self._logs: dict[str, Path | None] | None = None

    def refresh(self) -> None:
        """Query all parts."""
        self._logs = _json(self._exporter, "/api/v1/runs", _logs)
        self._sent = _json(self._alertmanager, "/api/v2/alerts", _states)
        self._rules = _json(self._prometheus, "/api/v1/alerts", _rules)

    def look(self, alert: Alert) -> Seen:
        """Return the state of an alert and its run."""
        target = self.target(alert.run)
        attempt: Attempt | None = None
        if target is not None:
            attempt = target.attempt
        elif self._logs is not None:
            # Without attempts, each start of the alert counts as one.
            attempt = Attempt("", int(alert.since), 0.0)
        why = target.gone if target else targets.NO_TARGET
        state = None if self._sent is None else self._sent.get(alert.fingerprint)
        holds = self._holds(alert)
        if state is None and holds:
            holds = None  # Alertmanager, just started, has not got it again
        return Seen(holds, state == "suppressed", attempt, not why, why)

    def target(self, run: str) -> Target | None:
        """Return the current target of a run, or ``None``."""
        return targets.find(run, (self._logs or {}).get(run), self._configured)

    def post(self, alerts: list[dict[str, Any]]) -> bool:
        """Post alerts to Alertmanager. Returns whether it accepted them."""
        try:
            reply = self._alertmanager.post("/api/v2/alerts", "application/json", json.dumps(alerts))
        except UnreachableError:
            return False
        return reply.status == 200

    def _holds(self, alert: Alert) -> bool | None:
        """Whether the condition of an alert holds; ``None`` if Prometheus does not answer.

        An alert outlasts its condition by ``notify.keep_firing_for``; that time does not count.
        """
        if self._rules is None:
            return None
        return any(
            rule["state"] == "firing"
            and not rule.get("keepFiringSince")
            and rule["labels"].get("alertname") == alert.labels.get("alertname")
            # Of another cluster's run of that name Prometheus has the label itself; its own is external.
            and "cluster" not in rule["labels"]
            and rule["labels"].items() <= alert.labels.items()
            for rule in self._rules
        )


def _json(client: Client, path: str, read: Any) -> Any:
    """Return the parsed content of a page, ``None`` if the answer is not valid."""
    try:
        reply = client.get(path)
        return read(json.loads(reply.body)) if reply.status == 200 else None
    except (UnreachableError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _rules(page: Any) -> list[dict[str, Any]]:
    return [{**alert, "labels": dict(alert["labels"])} for alert in page["data"]["alerts"]]


def _states(page: Any) -> dict[str, str]:
    return {alert["fingerprint"]: alert["status"]["state"] for alert in page}


def _logs(page: Any) -> Mapping[str, Path | None]:
    return {run["run"]: Path(run["log"]) if run["log"] else None for run in page["runs"]}
