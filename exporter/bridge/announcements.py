"""What receivers read of actions: a stop that is announced, and outcomes, as alerts for Alertmanager."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from exporter.bridge.audit import EVIDENCE, Action
from exporter.bridge.words import ACTIONS_TOPIC, silence_url
from exporter.translatable import Text

PENDING, TAKEN = "ActionPending", "ActionTaken"
EXPIRY_SECONDS = 120.0
"""Lifetime of an announcement in Alertmanager without another post: the bridge may die."""
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
    "resolved": Text("the alert no longer fires"),
    "recovered": Text("the alert's condition no longer holds"),
    "inhibited": Text("the alert is inhibited"),
    "silenced": Text("the alert was silenced during the veto window"),
    "new_attempt": Text("the run was restarted"),
    "unwrapped": Text("the run was not started by `stepwatch run`"),
    "ended": Text("the trainer has ended"),
    "unknown": Text("the bridge ended during a step that may be complete; the step is not repeated"),
    "per_day": Text("actions.per_day stops of this run were made within 24 h"),
}
"""Why an action was not taken, by the reason in the audit log."""


class Announcements:
    """Makes the alerts: ``alertmanager`` is where people silence, ``texts`` translate English texts."""

    def __init__(self, alertmanager: str, texts: Mapping[str, str], labels: Mapping[str, str]) -> None:
        self._alertmanager, self._texts, self._labels = alertmanager, texts, labels

    def pending(self, action: Action, begun: float, deadline: float, end: float) -> dict[str, Any]:
        """Return the announcement of a stop, whose veto window lasts from ``begun`` to ``deadline``."""
        where = action.results.get(EVIDENCE)
        labels = {"alertname": action.alert, "run": action.run}
        description = Text(
            "{run}: {alert} still fires. At {time}: SIGTERM to its trainer.{evidence} To veto, silence the "
            "alert: {url} or `make silence RUN={run} FOR=1h`",
            run=action.run,
            alert=action.alert,
            time=time.strftime("%H:%M:%S", time.localtime(deadline)),
            evidence=Text(" Evidence: {where}.", where=where) if where else "",
            url=silence_url(self._alertmanager, labels),
        )
        summary = _WOULD if action.dry_run else Text("Run will be stopped unless you silence the alert")
        return self._alert(PENDING, action, (summary, description), (begun, end))

    def taken(self, action: Action) -> dict[str, Any]:
        """Return the outcome of a closed action."""
        if action.outcome != "done":
            summary = _OUTCOMES[action.outcome]
        elif not action.stops:
            summary = Text("Evidence about the run was collected")
        else:
            summary = _WOULD if action.dry_run else Text("Run was stopped")
        steps = "; ".join(f"{step}: {said}" for step, said in action.results.items())
        description = Text(
            "{run}: {alert}, attempt {attempt}.{steps}{reason}",
            run=action.run,
            alert=action.alert,
            attempt=str(action.attempt or "-"),
            steps=f" {steps}." if steps else "",
            reason=Text(" Reason: {why}.", why=REASONS[action.reason]) if action.reason else "",
        )
        closed = action.closed or 0.0
        return self._alert(TAKEN, action, (summary, description), (closed, closed + OUTCOME_SECONDS))

    def _alert(
        self, name: str, action: Action, words: tuple[Text, Text], times: tuple[float, float]
    ) -> dict[str, Any]:
        own = {"alertname": name, "severity": action.severity, "topic": ACTIONS_TOPIC}
        begin, end = (datetime.fromtimestamp(each, timezone.utc).isoformat() for each in times)
        return {
            "labels": {**self._labels, **own, "run": action.run, "action": action.id},
            "annotations": {
                "summary": words[0].translated(self._texts),
                "description": words[1].translated(self._texts),
            },
            "startsAt": begin,
            "endsAt": end,
            "generatorURL": f"{self._alertmanager}/",
        }


def is_announced(action: Action) -> bool:
    """Whether receivers are notified of the outcome of a closed action."""
    return (
        "notify" in action.do
        or action.announced is not None
        or action.acted is not None
        or action.outcome in ("failed", "refused", "interrupted")
    )
