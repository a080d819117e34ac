"""The pages of the run exporter that are not a part's own, by path."""

from __future__ import annotations

from collections.abc import Callable

from exporter.exposition import CONTENT_TYPE
from exporter.message import Answer, Request, text
from exporter.routes import Table
from exporter.runs import marking

Metrics = Callable[[], bytes]
MarkRun = Callable[[str, str], None]
"""Gets a run's name and a note; may raise ``marking.RefusedError``."""


def table(metrics: Metrics, mark: MarkRun) -> Table:
    """Metrics, health, and marks."""
    return {
        "/metrics": {"GET": lambda _: Answer("200 OK", CONTENT_TYPE, metrics())},
        "/-/healthy": {"GET": lambda _: text("200 OK", "ok\n")},
        "/-/mark": {"POST": lambda request: _mark(request, mark)},
    }


def _mark(request: Request, mark: MarkRun) -> Answer:
    try:
        mark(*marking.read(request))
    except marking.RefusedError as refusal:
        return text(refusal.status, f"{refusal}\n")
    return text("200 OK", "ok\n")
