"""An HTTP server of a test, while a ``with`` block runs."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType

from typing_extensions import Self


class Listening:
    """Answers as ``handler`` says.

    Args:
        handler: Of requests.
        port: Where it listens, any free port if not given.
        host: The address of that port.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0, host: str = "127.0.0.1") -> None:
        self._server = ThreadingHTTPServer((host, port), handler)
        self.port = self._server.server_port
        self.url = f"http://{host}:{self.port}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class Exposing(Listening):
    """Serves metrics: for a path, without its slash, what ``page`` returns."""

    def __init__(self, page: Callable[[str], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = page(self.path.strip("/"))
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(f"{text}\n".encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
                """Say nothing."""

        super().__init__(Handler)
