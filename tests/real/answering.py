"""An HTTP server that gives everybody the same answer."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any

from typing_extensions import Self


class Answering:
    """Listens on 127.0.0.1 while the ``with`` block runs; ``received`` holds the JSON of each POST.

    Args:
        status: Of its answer.
        body: Of its answer; ``{path}`` in it is what was asked for.
        delay: Seconds until it answers.
    """

    def __init__(self, status: int = 200, body: str = "ok", delay: float = 0) -> None:
        self.received: list[dict[str, Any]] = []
        self.status, self.body, self.delay = status, body, delay
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        this = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                this.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                time.sleep(this.delay)
                answer = this.body.replace("{path}", self.path).encode()
                with suppress(BrokenPipeError, ConnectionResetError):  # nobody waits any more
                    self.send_response(this.status)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Say nothing."""

        return Handler

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
