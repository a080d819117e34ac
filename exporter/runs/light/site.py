"""The light page's routes: HTML for people, and the same as JSON for programs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs, unquote

import orjson

from exporter.http.message import Answer, Request, text
from exporter.http.routes import Table
from exporter.runs.light import formatting
from exporter.runs.light.pages import Pages
from exporter.runs.logs.names import nearest
from exporter.runs.overview.models import Firing, RunId, RunSummary, meant, ordered
from exporter.runs.overview.overview import Overview

ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    b'<path d="M1 12h4V8h4V4h6" fill="none" stroke="#1a6fc0" stroke-width="3"/></svg>'
)


class Light:
    """The pages and their JSON."""

    def __init__(self, overview: Overview, watched: Sequence[str], agents: str = "") -> None:
        self._overview = overview
        self._watched, self._agents = watched, agents

    def routes(self) -> Table:
        """The pages, by path."""
        return {
            "/": {"GET": self._runs},
            "/run/*": {"GET": self._run},
            "/icon.svg": {"GET": lambda _: Answer("200 OK", "image/svg+xml", ICON, _headers())},
            "/api/v1/runs": {"GET": self._runs_json},
            "/api/v1/runs/*/series": {"GET": self._series_json},
        }

    @cached_property
    def _pages(self) -> Pages:
        return Pages(self._watched, self._agents)  # the templates take 8 MB: only once someone opens a page

    def _runs(self, request: Request) -> Answer:
        as_of = _as_of(request)
        page = self._pages.runs(self._overview, as_of)
        return self._html("200 OK", page, refreshed=not as_of)

    def _run(self, request: Request) -> Answer:
        name = unquote(request.name)
        if "/" in request.name:
            # Links are relative to the page: lead to the same run with its slashes escaped.
            up = "../" * (request.name.count("/") + 1)
            link = f"{up}{formatting.page(name)}{f'?{request.query}' if request.query else ''}"
            return text("302 Found", f"{link}\n", ("Location", link), *_headers())
        found = self._meant(request)
        if len(found) > 1:
            page = self._pages.several(name, sorted(found))
            return self._html("300 Multiple Choices", page, refreshed=False)
        run = self._overview.run(found[0]) if found else None
        if run is not None:
            as_of = _as_of(request)
            page = self._pages.run(run, self._overview, as_of)
            return self._html("200 OK", page, refreshed=not as_of)
        # While logs are read it may still come, and an open page must show it then.
        omitted = self._overview.omitted
        status = "503 Service Unavailable" if omitted.reading else "404 Not Found"
        near = nearest(name, [run.name for run in self._overview.runs()])
        return self._html(status, self._pages.unknown(name, near, omitted), refreshed=omitted.reading)

    def _meant(self, request: Request) -> list[RunId]:
        (cluster, *_) = parse_qs(request.query).get("cluster", [""])
        return meant(self._overview.ids(), unquote(request.name), cluster)

    def _html(self, status: str, page: bytes, *, refreshed: bool) -> Answer:
        headers = _headers(self._pages.style)
        if refreshed:
            headers = (*headers, ("Refresh", str(self._pages.seconds)))
        return Answer(status, "text/html; charset=utf-8", page, headers)

    def _runs_json(self, _: Request) -> Answer:
        omitted = self._overview.omitted
        if omitted.reading:
            return _reading()
        document = {
            "runs": list(map(_run_document, ordered(self._overview.runs()))),
            "dormant": omitted.dormant,
            "alerts": list(map(_alert_document, self._overview.others())),
            "prometheus": self._overview.prometheus,
        }
        return _json("200 OK", document)

    def _series_json(self, request: Request) -> Answer:
        name = unquote(request.name)
        (signal, *_) = parse_qs(request.query).get("signal", [""])
        found = self._meant(request)
        if not signal:
            return _refused("400 Bad Request", "Expected: ?signal=NAME.", self._signals(found))
        if len(found) > 1:
            words = f"Several clusters have a run named {name}. Expected: &cluster=NAME."
            return _refused("300 Multiple Choices", words, sorted(run.cluster or "" for run in found))
        series = self._overview.series(found[0], signal) if found else None
        if series:
            document = {field: getattr(series, field) for field in ("signal", "unit", "points", "limits")}
            return _json("200 OK", {"run": name, "cluster": found[0].cluster or "", **document})
        if self._overview.omitted.reading:
            return _reading()
        if not found:
            names = [run.run for run in self._overview.ids()]
            return _refused("404 Not Found", f"There is no run named {name}.", nearest(name, names))
        words = f"Run {name} has no curve of {signal}: it does not log that, or no panel shows it."
        return _refused("404 Not Found", words, nearest(signal.lower(), self._signals(found)))

    def _signals(self, found: Sequence[RunId]) -> list[str]:
        run = self._overview.run(found[0]) if found else None
        return sorted({signal for row in run.rows for signal in row.values}) if run else []


def _headers(style: str = "") -> tuple[tuple[str, str], ...]:
    """Allow no script, form, frame or foreign resource; the only style is the one with this hash."""
    allowed = f" style-src '{style}'; img-src 'self';" if style else ""
    policy = f"default-src 'none';{allowed} base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return (
        ("Content-Security-Policy", policy),
        ("Cache-Control", "no-store"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Referrer-Policy", "no-referrer"),
        ("X-Content-Type-Options", "nosniff"),
    )


def _as_of(request: Request) -> str:
    """The time, if the page is not to refresh itself."""
    return formatting.clock(time.time()) if parse_qs(request.query).get("refresh") == ["off"] else ""


_OF_A_RUN = (
    *("nodes", "arrives", "state", "severity", "framework", "step", "age_seconds"),
    *("restarts", "resumes"),
)
_OF_A_SIGNAL = (
    *("signal", "value", "judged", "unit", "state", "warning", "critical"),
    *("alerts", "diagnosis"),
)
_OF_AN_ALERT = (
    *("severity", "topic", "summary", "description", "action", "runbook", "dashboard", "value"),
    *("since", "silenced_until", "ends"),
)


def _run_document(run: RunSummary) -> dict[str, Any]:
    return {
        "run": run.name,
        "cluster": run.cluster or "",
        **{name: getattr(run, name) for name in _OF_A_RUN},
        "total_steps": run.total,
        "log": run.log or None,
        "page": f"/{formatting.page(run.name, run.cluster)}",
        "signals": [
            {**{name: getattr(health, name) for name in _OF_A_SIGNAL}, "since_step": health.since}
            for health in run.healths
        ],
        "alerts": list(map(_alert_document, run.firing)),
    }


def _alert_document(alert: Firing) -> dict[str, Any]:
    own = {name: getattr(alert, name) for name in _OF_AN_ALERT}
    return {"alert": alert.name, **own, "since_step": alert.step, "condition_passed": alert.passed}


def _reading() -> Answer:
    words = "The logs are still being read. Retry in a few seconds."
    return _refused("503 Service Unavailable", words, [])


def _refused(status: str, words: str, near: list[str]) -> Answer:
    return _json(status, {"error": words, "nearest": near})


def _json(status: str, document: dict[str, Any]) -> Answer:
    return Answer(status, "application/json", orjson.dumps(document) + b"\n", _headers())
