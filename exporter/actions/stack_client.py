"""Queries Prometheus, Alertmanager and the run exporter, and posts to Alertmanager."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from exporter.actions import targets
from exporter.actions.policy import Alert, Attempt, Seen
from exporter.actions.targets import Configured, Target
from exporter.engine_client import Client, UnreachableError


class StackClient:
    """Queries the other parts by their URLs; results of a ``refresh`` are used until the next."""

    def __init__(
        self,
        prometheus: str,
        alertmanager: str,
        exporter: str,
        password_file: Path | None,
        configured: Sequence[Configured] = (),
    ) -> None:
        password = str(password_file) if password_file else None
        self._prometheus, self._alertmanager = Client(prometheus, password), Client(alertmanager, password)
        self._exporter, self._configured = Client(exporter), configured
        self._rules: list[dict[str, Any]] | None = None
        self._sent: dict[str, str] | None = None
        self._logs: dict[str, str | None] | None = None

    def refresh(self) -> None:
        """Query all parts."""
        self._logs = _answer(
            self._exporter, "/api/v1/runs", lambda page: {each["run"]: each["log"] for each in page["runs"]}
        )
        self._sent = _answer(
            self._alertmanager,
            "/api/v2/alerts",
            lambda page: {each["fingerprint"]: each["status"]["state"] for each in page},
        )
        self._rules = _answer(
            self._prometheus,
            "/api/v1/alerts",
            lambda page: [{**each, "labels": dict(each["labels"])} for each in page["data"]["alerts"]],
        )

    def look(self, alert: Alert) -> Seen:
        """Return the state of an alert and its run."""
        target = self.target(alert.run)
        attempt = target.attempt if target else None
        if target is None and self._logs is not None:
            # Without attempts, each start of the alert counts as one.
            attempt = Attempt("", int(alert.since), 0.0)
        why = target.gone if target else "unwrapped"
        state = None if self._sent is None else self._sent.get(alert.fingerprint)
        holds = self._holds(alert)
        if state is None and holds:
            holds = None  # Alertmanager, just started, has not got it again
        return Seen(holds, state == "suppressed", attempt, not why, why)

    def target(self, run: str) -> Target | None:
        """Return the current target of a run, or ``None``."""
        log = (self._logs or {}).get(run)
        return targets.find(run, Path(log) if log else None, self._configured)

    def post(self, alerts: list[dict[str, Any]]) -> bool:
        """Post alerts to Alertmanager. Returns whether it accepted them."""
        try:
            reply = self._alertmanager.post("/api/v2/alerts", "application/json", json.dumps(alerts))
        except UnreachableError:
            return False
        return reply.status == 200

    def _holds(self, alert: Alert) -> bool | None:
        """Whether an alert's condition holds, without `notify.keep_firing_for`; ``None`` if unknown."""
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


def _answer(client: Client, path: str, read: Callable[[Any], Any]) -> Any:
    """Return what is read of a page of JSON, ``None`` if the answer is not valid."""
    try:
        reply = client.get(path)
        return read(json.loads(reply.body)) if reply.status == 200 else None
    except (UnreachableError, ValueError, LookupError, TypeError, AttributeError):
        return None
