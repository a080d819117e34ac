"""What receivers read: the announcement of a step and its outcome, as alerts for Alertmanager."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from exporter.actions.policy import EVIDENCE, Action
from exporter.translatable import Text

PENDING, TAKEN = "ActionPending", "ActionTaken"
TOPIC = "actions"
EXPIRY_SECONDS = 120.0
"""Lifetime of an announcement in Alertmanager without another post: this service may die."""
OUTCOME_SECONDS = 600.0
"""How long the outcome stays among the alerts."""

_WOULD = Text("Dry run: this run would be stopped")
_OUTCOMES = {
    "failed": Text("Action on the run failed"),
    "vetoed": Text("Action on the run was vetoed"),
    "dropped": Text("Action on the run was dropped"),
    "refused": Text("Action on the run is not possible"),
    "interrupted": Text("Action on the run was interrupted"),
}
REASONS = {
    "switched_off": Text("the kill switch is on"),
    "older": Text("the alert started before the circuit breaker"),
    "resolved": Text("the alert no longer fires"),
    "muted": Text("the alert is silenced or inhibited"),
    "new_attempt": Text("the run was restarted after the alert started"),
    "already": Text("this alert already had its action in this attempt of the run"),
    "unconfirmed": Text("Prometheus, Alertmanager or the run exporter did not confirm it in time"),
    "unwrapped": Text("the run was not started by `stepwatch run`, and actions.targets does not list it"),
    "ended": Text("the trainer has ended"),
    "no_pid_file": Text("its process group file cannot be read"),
    "pid_reused": Text("its process group file is older than the process"),
    "no_group": Text("its process group file does not name a separate group"),
    "restarted": Text("the circuit breaker was restarted; nothing is repeated"),
    "unknown": Text("the circuit breaker ended during a step that may be complete; the step is not repeated"),
    "another_open": Text("another action on this run is open"),
    "cooldown": Text("the last action on this run, or its veto, is too recent"),
    "per_day": Text("actions.per_day actions on this run were taken within 24 h"),
    "by_hand": Text("a person vetoed it"),
}
"""Why an action was not taken, by the reason in the audit log."""


class Messages:
    """Makes the alerts: ``link`` is this service's page, ``texts`` are translations by English text."""

    def __init__(
        self, link: str, texts: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
    ) -> None:
        self._link, self._texts, self._labels = link, texts or {}, labels or {}

    def page(self, action: Action) -> str:
        """Return the address of an action's page, with its veto."""
        return f"{self._link}/action/{action.id}"

    def pending(self, action: Action, deadline: float, now: float) -> dict[str, Any]:
        """Return the announcement of a stop."""
        found = action.results.get(EVIDENCE)
        summary = _WOULD if action.dry_run else Text("Run will be stopped unless you veto")
        description = Text(
            "{run}: {alert} still fires. At {time}: {what}.{evidence} Veto: {url}",
            run=action.run,
            alert=action.alert,
            time=time.strftime("%H:%M:%S", time.localtime(deadline)),
            what=Text("SIGTERM to its trainer"),
            evidence=Text(" Evidence: {where}.", where=found.text) if found else "",
            url=self.page(action),
        )
        times = action.announced or now, now + EXPIRY_SECONDS
        return self._alert(PENDING, action, (summary, description), times)

    def over(self, action: Action) -> dict[str, Any]:
        """Return the end of the announcement of a closed action."""
        closed = action.closed or 0.0
        return {**self.pending(action, action.deadline or closed, closed), "endsAt": _time(closed)}

    def taken(self, action: Action) -> dict[str, Any]:
        """Return the outcome of a closed action."""
        if action.outcome != "done":
            summary = _OUTCOMES[action.outcome]
        elif not action.stops:
            summary = Text("Evidence about the run was collected")
        else:
            summary = _WOULD if action.dry_run else Text("Run was stopped")
        steps = "; ".join(f"{step}: {result.text}" for step, result in action.results.items())
        why = REASONS.get(action.reason, Text(action.reason))
        description = Text(
            "{run}: {alert}, attempt {attempt}.{steps}{reason} Details: {url}",
            run=action.run,
            alert=action.alert,
            attempt=str(action.attempt.number) if action.attempt.target else "-",
            steps=f" {steps}." if steps else "",
            reason=Text(" Reason: {why}.", why=why) if action.reason else "",
            url=self.page(action),
        )
        closed = action.closed or 0.0
        return self._alert(TAKEN, action, (summary, description), (closed, closed + OUTCOME_SECONDS))

    def _alert(
        self, name: str, action: Action, words: tuple[Text, Text], times: tuple[float, float]
    ) -> dict[str, Any]:
        return {
            "labels": {
                **self._labels,
                "alertname": name,
                "severity": action.severity,
                "topic": TOPIC,
                "run": action.run,
                "action": action.id,
            },
            "annotations": {
                "summary": words[0].translated(self._texts),
                "description": words[1].translated(self._texts),
            },
            "startsAt": _time(times[0]),
            "endsAt": _time(times[1]),
            "generatorURL": self.page(action),
        }


def is_announced(action: Action) -> bool:
    """Whether receivers are notified of the outcome of a closed action."""
    return (
        "notify" in action.do
        or action.announced is not None
        or action.acted is not None
        or action.outcome in ("failed", "refused", "interrupted")
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
