"""Serve the pages of the exporter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from exporter.exposition import CONTENT_TYPE
from exporter.runs import marking

Metrics = Callable[[], bytes]
MarkRun = Callable[[str, str], None]

STOP_SECONDS = 0.1
"""How long ``shutdown`` waits at most."""

INDEX = b"Stepwatch run exporter. Metrics: /metrics  Health: /-/healthy  POST a mark: /-/mark\n"


class Server(ThreadingHTTPServer):
    """Answers ``/metrics`` and ``/-/healthy``, and takes marks, in threads of their own.

    ``mark`` gets a run's name and a note; it may raise ``marking.RefusedError``.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], metrics: Metrics, mark: MarkRun) -> None:
        super().__init__(address, _Handler)
        self.metrics, self.mark = metrics, mark

    def start(self) -> None:
        """Serve from now on, in the background."""
        Thread(target=self.serve_forever, args=(STOP_SECONDS,), name="http", daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that goes away before it has its page is no news; anything else is."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    server: Server

    def do_GET(self) -> None:
        pages: dict[str, Callable[[], tuple[str, bytes]]] = {
            "/metrics": lambda: (CONTENT_TYPE, self.server.metrics()),
            "/-/healthy": lambda: ("text/plain", b"ok\n"),
            "/": lambda: ("text/plain", INDEX),
        }
        page = pages.get(self.path.partition("?")[0])
        if page is None:
            self.send_error(404, "no such page", "Pages: /metrics, /-/healthy")
            return
        self._answer(200, *page())

    def do_POST(self) -> None:
        self.close_connection = True  # whatever of a refused body is still to come is no request
        if self.path != "/-/mark":
            self.send_error(404, "no such page", "Pages for POST: /-/mark")
            return
        try:
            self.server.mark(*marking.read(self.headers, self.rfile))
        except marking.RefusedError as refusal:
            words = f"{refusal}\n".encode("utf-8", "backslashreplace")
            self._answer(refusal.status, "text/plain; charset=utf-8", words)
        else:
            self._answer(200, "text/plain", b"ok\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the library's name)
        """A scrape every five seconds is no news."""
