"""The same as JSON, for programs. Names: ``run``, ``step``, ``signal``, as on the metrics page."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote

import orjson

from exporter.http.message import Answer, Request
from exporter.http.routes import Table
from exporter.runs.light import Story, links
from exporter.runs.light.card import Card, ordered
from exporter.runs.light.headers import headers
from exporter.runs.logs.names import nearest
from exporter.runs.overview.models import Firing, Health, Range, Series

Document = dict[str, Any]


class Api:
    """Answers for programs; every error is JSON with words, too."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def routes(self) -> Table:
        """By path."""
        return {
            "/api/v1/runs": {"GET": self._runs},
            "/api/v1/runs/*/series": {"GET": self._series},
        }

    def _runs(self, _: Request) -> Answer:
        if self._story.unshown.reading:
            return _unread()
        runs = self._story.runs()
        ages = {run.name: run.age_seconds for run in runs}
        found = [_run(card, ages[card.run.name]) for card in ordered(runs)]
        others = [_alert(alert) for alert in self._story.others()]
        dormant, trouble = self._story.unshown.dormant, self._story.prometheus
        return _json("200 OK", {"runs": found, "dormant": dormant, "alerts": others, "prometheus": trouble})

    def _series(self, request: Request) -> Answer:
        name = unquote(request.name)
        (signal, *_) = parse_qs(request.query).get("signal", [""])
        if not signal:
            return _refused("400 Bad Request", "Expected: ?signal= and a name.", self._signals(name))
        series = self._story.series(name, signal)
        return _json("200 OK", _curve(name, series)) if series else self._missing(name, signal)

    def _missing(self, name: str, signal: str) -> Answer:
        if self._story.unshown.reading:
            return _unread()
        names = [run.name for run in self._story.runs()]
        if name not in names:
            return _refused("404 Not Found", f"There is no run named {name}.", nearest(name, names))
        words = f"Run {name} has no curve of {signal}: it does not log that, or no panel shows it."
        return _refused("404 Not Found", words, nearest(signal.lower(), self._signals(name)))

    def _signals(self, name: str) -> list[str]:
        found = self._story.run(name)
        return sorted({signal for row in found.rows for signal in row.values}) if found else []


def _run(card: Card, age: float | None) -> Document:
    run = card.run
    return {
        "run": run.name,
        "state": run.state,
        "severity": card.severity,
        "framework": run.framework,
        "step": run.step,
        "total_steps": run.total,
        "age_seconds": age,
        "restarts": run.restarts,
        "resumes": run.resumes,
        "page": f"/{links.page(run.name)}",
        "signals": [_health(health) for health in run.healths],
        "alerts": [_alert(alert) for alert in run.firing],
    }


def _health(health: Health) -> Document:
    return {
        "signal": health.signal,
        "value": health.value,
        "judged": health.judged,
        "unit": health.unit,
        "state": health.state,
        "warning": _range(health.warning),
        "critical": _range(health.critical),
        "since_step": health.since,
        "alerts": health.alerts,
        "diagnosis": health.diagnosis,
    }


def _range(limits: Range) -> Document:
    return {"low": limits.low, "high": limits.high}


def _alert(alert: Firing) -> Document:
    return {
        "alert": alert.name,
        "severity": alert.severity,
        "topic": alert.topic,
        "summary": alert.summary,
        "description": alert.description,
        "action": alert.action,
        "runbook": alert.runbook,
        "dashboard": alert.dashboard,
        "value": alert.value,
        "since": alert.since,
        "silenced_until": alert.silenced_until,
    }


def _curve(name: str, series: Series) -> Document:
    return {
        "run": name,
        "signal": series.signal,
        "unit": series.unit,
        "points": series.points,
        "limits": series.limits,
    }


def _unread() -> Answer:
    words = "The logs are still being read. Ask again in some seconds."
    return _refused("503 Service Unavailable", words, [])


def _refused(status: str, words: str, near: list[str]) -> Answer:
    return _json(status, {"error": words, "nearest": near})


def _json(status: str, document: Document) -> Answer:
    return Answer(status, "application/json", orjson.dumps(document) + b"\n", headers())
