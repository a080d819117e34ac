"""What is answered, by path."""

from __future__ import annotations

import time

from exporter.gpu.contract import LONGEST_RELEASE_SECONDS, RELEASE_SECONDS
from exporter.gpu.state import State
from exporter.gpu.supervisor import Interval, Supervisor
from exporter.http.exposition import CONTENT_TYPE
from exporter.http.message import Answer, Later, Request, text
from exporter.http.routes import Routes

INDEX = (
    "Stepwatch GPU exporter. Metrics: /metrics  Health: /-/healthy  After the first reading: /-/ready\n"
    "POST /-/release?seconds=60 releases the GPUs for a minute, to reset one or to change MIG.\n"
)
SPAN = f"Expected: /-/release?seconds=N with N from 0 (ends the release) to {LONGEST_RELEASE_SECONDS}.\n"
STUCK = "The process that reads the GPUs hangs in the driver and cannot be killed: no GPU is released.\n"
FREE = (
    "The GPUs are released for {} s: the process that had them open has ended.\n"
    "POST /-/release?seconds=0 ends the release.\n"
)


class Pages:
    """Gives the answer to each request."""

    def __init__(self, state: State, interval: Interval, supervisor: Supervisor) -> None:
        self._state = state
        self._interval = interval
        self._supervisor = supervisor
        self._routes = Routes(
            {
                "/metrics": {"GET": self._metrics},
                "/-/healthy": {"GET": lambda _: text("200 OK", "ok\n")},
                "/-/ready": {"GET": self._ready},
                "/-/release": {"POST": self._release},
                "/": {"GET": lambda _: text("200 OK", INDEX)},
            }
        )

    def __call__(self, request: Request) -> Answer | Later:
        """The answer, or what will have it."""
        return self._routes(request)

    def _metrics(self, _: Request) -> Answer:
        now = time.monotonic()
        self._interval.scraped(now)
        return Answer("200 OK", CONTENT_TYPE, self._state.page(now))

    def _ready(self, _: Request) -> Answer:
        if self._state.ready:
            return text("200 OK", "ok\n")
        return text("503 Service Unavailable", "not read yet\n")

    def _release(self, request: Request) -> Answer | Later:
        """Release the devices; the answer waits until that is done."""
        if "origin" in request.headers:  # any site can have its visitor's browser send this
            return text("403 Forbidden", "requests from browsers are refused\n")
        seconds = _seconds(request.query)
        if seconds is None:
            return text("400 Bad Request", SPAN)
        self._supervisor.release(seconds, time.monotonic())
        return lambda: self._released(seconds)

    def _released(self, seconds: int) -> Answer | None:
        if not seconds:
            return text("200 OK", "The GPUs are read again.\n")
        if self._supervisor.stuck(time.monotonic()):
            return text("503 Service Unavailable", STUCK)
        return text("200 OK", FREE.format(seconds)) if self._supervisor.free else None


def _seconds(query: str) -> int | None:
    name, _, text = (query or f"seconds={RELEASE_SECONDS}").partition("=")
    known = name == "seconds" and text.isascii() and text.isdecimal() and len(text) < 6
    return int(text) if known and int(text) <= LONGEST_RELEASE_SECONDS else None
