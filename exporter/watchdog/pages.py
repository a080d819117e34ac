"""What is answered, by path."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from exporter.http import process
from exporter.http.exposition import CONTENT_TYPE, Family, Sample, header, lines
from exporter.http.message import Answer, Later, Request, text
from exporter.http.routes import Routes
from exporter.watchdog.finding import Findings

INDEX = "Stepwatch watchdog. What is wrong: /api/v1/findings  Metrics: /metrics  Health: /-/healthy\n"

Samples = Callable[[], Iterator[tuple[Family, list[Sample]]]]


class Pages:
    """Gives the answer to each request.

    Args:
        findings: What is wrong.
        looked: Gives the Unix time of the last look, 0 before the first.
        more: Metrics of other parts.
    """

    def __init__(self, findings: Findings, looked: Callable[[], float], *more: Samples) -> None:
        self._findings, self._looked, self._more = findings, looked, more
        self._routes = Routes(
            {
                "/": {"GET": lambda _: text("200 OK", INDEX)},
                "/metrics": {"GET": self._metrics},
                "/-/healthy": {"GET": lambda _: text("200 OK", "ok\n")},
                "/api/v1/findings": {"GET": self._json},
            }
        )

    def __call__(self, request: Request) -> Answer | Later:
        """The answer."""
        return self._routes(request)

    def _json(self, _: Request) -> Answer:
        document = {"looked": self._looked(), "findings": self._findings.document()}
        return Answer("200 OK", "application/json", json.dumps(document).encode() + b"\n")

    def _metrics(self, _: Request) -> Answer:
        families = [*self._samples(), *(pair for part in self._more for pair in part()), *process.samples()]
        page = "".join(header(family) + lines(family.name, "", samples) for family, samples in families)
        return Answer("200 OK", CONTENT_TYPE, page.encode("utf-8", "replace"))

    def _samples(self) -> Iterator[tuple[Family, list[Sample]]]:
        found: list[Sample] = [
            ({"fault": known.finding.fault, "name": known.finding.name}, 1)
            for known in self._findings.present
        ]
        looked: list[Sample] = [({}, self._looked())]
        yield Family("stepwatch_watchdog_finding", "gauge", "What is wrong now."), found
        yield Family("stepwatch_watchdog_last_look_timestamp_seconds", "gauge", "The last look."), looked
