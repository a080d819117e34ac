"""A server in a thread of its own, so that pages are served while logs are read."""

from __future__ import annotations

from threading import Event, Thread

from exporter.http.server import Server

TICK_SECONDS = 0.1
"""How long ``stop`` waits at most."""


class Serving:
    """Serves from ``start`` until ``stop``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = Event()
        self._thread = Thread(target=self._serve, name="http", daemon=True)

    def start(self) -> None:
        """Serve from now on, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Serve no more; the port is free afterwards."""
        self._stop.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._server.serve(TICK_SECONDS)
        self._server.close()
