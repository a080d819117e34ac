"""The pages of the run exporter that are not a part's own, by path."""

from __future__ import annotations

from collections.abc import Callable

from exporter.http.exposition import CONTENT_TYPE
from exporter.http.message import Answer, Request, text
from exporter.http.routes import Table
from exporter.runs.serve import marking

Metrics = Callable[[], bytes]
Report = Callable[[], tuple[bool, str]]
"""Whether the exporter is well, and in words."""
MarkRun = Callable[[str, str], None]
"""Gets a run's name and a note; may raise ``marking.RefusedError``."""


def table(metrics: Metrics, mark: MarkRun, report: Report) -> Table:
    """Metrics, health, and marks."""
    return {
        "/metrics": {"GET": lambda _: Answer("200 OK", CONTENT_TYPE, metrics())},
        "/-/healthy": {"GET": lambda _: _health(*report())},
        "/-/mark": {"POST": lambda request: _mark(request, mark)},
    }


def _health(well: bool, words: str) -> Answer:  # noqa: FBT001
    return text("200 OK" if well else "503 Service Unavailable", words)


def _mark(request: Request, mark: MarkRun) -> Answer:
    try:
        mark(*marking.read(request))
    except marking.RefusedError as refusal:
        return text(refusal.status, f"{refusal}\n")
    return text("200 OK", "ok\n")
