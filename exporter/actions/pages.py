"""What the service answers: the webhook, and its actions as HTML with the veto, as JSON and as metrics."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from exporter.actions.breaker import Breaker
from exporter.actions.messages import REASONS
from exporter.actions.policy import Action, Alert, NotifiedAlert
from exporter.engine_client import timestamp
from exporter.http.exposition import Metric, Sample, own
from exporter.http.message import Answer, Request, metrics_page, text
from exporter.http.routes import Table
from exporter.http.service import HEADERS, WebhookError, clock, html_page, require_password

MOST_BODY = 4 << 20
"""Bytes of a request: Alertmanager sends the alerts of one group with all their texts."""
MOST_SHOWN = 200
_SHOWN_SECONDS = 7 * 86400.0
"""How long an action is a mark on dashboards."""
_GONE = "No such action. GET / lists all actions.\n"


class Site:
    """The routes; ``password_file`` is of the webhook."""

    def __init__(self, breaker: Breaker, password_file: Any) -> None:
        self._breaker, self._password_file = breaker, password_file

    def routes(self) -> Table:
        """Return the pages by path. Following or previewing a link vetoes nothing: a veto is a POST."""
        return {
            "/": {"GET": self._index},
            "/action/*": {"GET": self._action},
            "/veto/*": {"POST": self._veto},
            "/off": {"POST": self._off},
            "/api/v1/alerts": {"POST": self._webhook},
            "/api/v1/actions": {"GET": self._json},
            "/metrics": {"GET": self._metrics},
            "/-/healthy": {"GET": lambda _: text("200 OK", "ok\n")},
        }

    def _webhook(self, request: Request) -> Answer:
        try:
            self._breaker.receive(notified_alerts(request, self._password_file))
        except WebhookError as refused:
            return refused.answer
        return text("200 OK", "ok\n")

    def _veto(self, request: Request) -> Answer:
        known = {action.id: action for action in self._breaker.actions()}
        if request.name not in known:
            return text("404 Not Found", _GONE)
        try:
            done = self._breaker.veto(request.name, request.client)
        except OSError as problem:
            words = f"The veto cannot be saved: {problem.strerror}. Fix: POST /off, or free space.\n"
            return text("500 Internal Server Error", words)
        if not done:
            return text("409 Conflict", f"Too late: the action is {known[request.name].outcome}.\n")
        return text("303 See Other", "vetoed\n", ("Location", f"../action/{request.name}"), *HEADERS)

    def _off(self, _: Request) -> Answer:
        try:
            self._breaker.switch_off()
        except OSError as problem:
            return text("500 Internal Server Error", f"The kill switch: {problem.strerror}.\n")
        return text("303 See Other", "off\n", ("Location", "./"), *HEADERS)

    def _index(self, _: Request) -> Answer:
        rows = "".join(
            f'<tr><td>{clock(action.opened)}</td><td><a href="action/{action.id}">{escape(action.run)}</a>'
            f"</td><td>{escape(action.alert)}</td><td>{escape(_steps(action))}</td>"
            f"<td>{escape(_state(action))}</td></tr>"
            for action in self._breaker.actions()[:MOST_SHOWN]
        )
        switch = (
            "<p><strong>The kill switch is on: no action is taken.</strong> Fix: <code>python -m stepwatch "
            "actions --kill-switch off</code></p>"
            if self._breaker.off
            else '<form method="post" action="off"><button>Stop all actions (kill switch)</button></form>'
        )
        dry = "<p>Dry run: no run is changed.</p>" if self._breaker.limits.dry_run else ""
        table = (
            f"<table><tr><th>opened</th><th>run</th><th>alert</th><th>steps</th><th>state</th></tr>{rows}"
            "</table>"
            if rows
            else "<p>No action yet.</p>"
        )
        return html_page("Circuit breaker", f"{switch}{dry}{table}")

    def _action(self, request: Request) -> Answer:
        action = next((each for each in self._breaker.actions() if each.id == request.name), None)
        if action is None:
            return text("404 Not Found", _GONE)
        target, number, _ = action.attempt
        facts = {
            "Run": f"{action.run}{f', attempt {number} ({target})' if target else ''}",
            "Alert": f"{action.alert} ({action.severity}), fired at {clock(action.since)}",
            "Steps": _steps(action),
            "State": _state(action),
            **{f"Result of {step}": result.text for step, result in action.results.items()},
        }
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>" for name, fact in facts.items()
        )
        veto = (
            ""
            if action.outcome
            else f'<form method="post" action="../veto/{action.id}"><p><button>Veto</button></p></form>'
        )
        return html_page(
            f"Action on {action.run}", f'<table>{rows}</table>{veto}<p><a href="../">All</a></p>'
        )

    def _json(self, _: Request) -> Answer:
        document = {
            "dry_run": self._breaker.limits.dry_run,
            "off": self._breaker.off,
            "since": self._breaker.started,
            "watched": self._breaker.watched,
            "actions": [_document(action) for action in self._breaker.actions()[:MOST_SHOWN]],
        }
        body = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
        return Answer("200 OK", "application/json", body + b"\n", HEADERS)

    def _metrics(self, _: Request) -> Answer:
        return metrics_page(samples(self._breaker, time.time()))


def notified_alerts(request: Request, password_file: Path | None) -> list[NotifiedAlert]:
    """Return what started or stopped firing, by a request of Alertmanager's webhook. Raises WebhookError."""
    require_password(request.headers, password_file)
    try:
        return [
            NotifiedAlert(
                Alert(
                    str(alert["fingerprint"]),
                    {str(name): str(value) for name, value in alert["labels"].items()},
                    timestamp(alert["startsAt"]),
                ),
                alert["status"] == "firing",
            )
            for alert in json.loads(request.body)["alerts"]
        ]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        words = "This is not a notification. Expected: the JSON of Alertmanager's webhook, version 4.\n"
        raise WebhookError(text("400 Bad Request", words)) from None


def samples(breaker: Breaker, now: float) -> Iterator[Metric]:
    """Yield the metrics of the circuit breaker."""
    actions = breaker.actions()
    counted = Counter(
        (each.outcome, each.alert, str(each.dry_run).lower()) for each in actions if each.outcome
    )
    ended: list[Sample] = [
        (dict(zip(("outcome", "alert", "dry_run"), of, strict=True)), count)
        for of, count in sorted(counted.items())
    ]
    marks: list[Sample] = []
    for each in actions[:MOST_SHOWN]:
        if each.closed is not None and now - each.closed < _SHOWN_SECONDS:
            labels = {"run": each.run, "action": each.id, "alert": each.alert, "steps": _steps(each)}
            marks.append(({**labels, "outcome": each.outcome}, each.closed))
    yield own("actions_total", "Closed actions by outcome.", ended)
    yield own("actions_open", "Open actions.", sum(not action.outcome for action in actions))
    yield own("action_timestamp_seconds", "When an action on a run was closed.", marks)
    yield own("actions_watched_alerts", "Firing alerts that a policy covers.", breaker.watched)
    yield own("actions_looks_total", "Checks of these alerts and of the runs.", breaker.looks)
    yield own("actions_dry_run", "1 in a dry run.", breaker.limits.dry_run)
    yield own("actions_off", "1 while the kill switch is on.", breaker.off)
    failures: list[Sample] = [({"what": what}, count) for what, count in sorted(breaker.failures.items())]
    yield own("actions_failures_total", "Failed posts to Alertmanager and failed writes.", failures)


def _document(action: Action) -> dict[str, Any]:
    same = ("id", "run", "alert", "severity", "since", "dry_run", "opened", "deadline", "closed", "outcome")
    return {
        **{name: getattr(action, name) for name in same},
        "attempt": action.attempt.number,
        "target": action.attempt.target,
        "steps": list(action.do),
        "results": {step: result._asdict() for step, result in action.results.items()},
        "state": _state(action),
        "page": f"/action/{action.id}",
    }


def _steps(action: Action) -> str:
    return ", ".join(action.do) + " (dry run)" * action.dry_run


def _state(action: Action) -> str:
    if action.outcome:
        why = str(REASONS.get(action.reason, action.reason))
        outcome = "not done, dry run" if action.dry_run and action.outcome == "done" else action.outcome
        return f"{outcome}{f': {why}' if why else ''}, {clock(action.closed or 0.0)}"
    if action.step:
        return f"doing {action.step}"
    if action.deadline is not None and action.acted is None:
        return f"stop at {clock(action.deadline)}, unless vetoed"
    return "open"
