"""An HTTP server that gives everybody the same answer."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl

from tests.real.listening import Listening


class Answering(Listening):
    """Listens on 127.0.0.1 while the ``with`` block runs.

    ``received`` holds the JSON, or the form, of each POST and PUT.

    Args:
        status: Of its answer.
        body: Of its answer; ``{path}`` in it is what was asked for.
        delay: Seconds until it answers.
    """

    def __init__(self, status: int = 200, body: str = "ok", delay: float = 0) -> None:
        self.received: list[dict[str, Any]] = []
        self.status, self.body, self.delay = status, body, delay
        super().__init__(self._handler())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        this = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_form = "form" in self.headers.get("Content-Type", "")
                this.received.append(dict(parse_qsl(body.decode())) if is_form else json.loads(body))
                self.do_GET()

            do_PUT = do_POST  # noqa: N815 - the base class's names

            def do_GET(self) -> None:
                time.sleep(this.delay)
                answer = this.body.replace("{path}", self.path).encode()
                with suppress(BrokenPipeError, ConnectionResetError):  # no one waits any more
                    self.send_response(this.status)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Say nothing."""

        return Handler
