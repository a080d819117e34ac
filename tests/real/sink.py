"""A webhook that keeps what Alertmanager sends it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.real.listening import Listening
from tests.real.waiting import HANG_SECONDS


@dataclass(frozen=True)
class Received:
    """One message: its body, and when it came (Unix seconds)."""

    at: float
    payload: dict[str, Any]

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The alerts in it, with ``status``, ``labels`` and ``annotations``."""
        alerts: list[dict[str, Any]] = self.payload["alerts"]
        return alerts


class WebhookSink(Listening):
    """Listens while the ``with`` block runs; ``received`` is in order of arrival.

    Args:
        port: Where it listens, any free port if not given.
        host: The address of that port.
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self.received: list[Received] = []
        self._news = threading.Condition()
        super().__init__(self._handler(), port, host)
        self.url += "/"

    def wait_for(self, predicate: Callable[[Received], bool], timeout: float = HANG_SECONDS) -> Received:
        """The first message that fits, waited for no longer than so many seconds."""
        deadline = time.monotonic() + timeout
        with self._news:
            while not (fitting := [message for message in self.received if predicate(message)]):
                if not self._news.wait(deadline - time.monotonic()):
                    raise AssertionError(f"no such message in {timeout} s; came: {self.summary()}")
        return fitting[0]

    def summary(self) -> list[str]:
        """Status, name and run of each alert that came."""
        return [
            f"{alert['status']} {alert['labels'].get('alertname')} {alert['labels'].get('run', '')}"
            for message in self.received
            for alert in message.alerts
        ]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with sink._news:
                    sink.received.append(Received(time.time(), json.loads(body)))
                    sink._news.notify_all()
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Say nothing."""

        return Handler
