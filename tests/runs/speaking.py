"""A server that says whatever a test wants, also what no good server says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.real.listening import Listening


@dataclass(frozen=True)
class Asked:
    path: str
    headers: dict[str, str]
    body: bytes


class Speaking(Listening):
    """Listens on 127.0.0.1 while the ``with`` block runs; ``asked`` holds the requests in order."""

    def __init__(self, speak: Callable[[BaseHTTPRequestHandler], object]) -> None:
        self.asked: list[Asked] = []
        this = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                this.asked.append(Asked(self.path, dict(self.headers), body))
                with suppress(BrokenPipeError, ConnectionResetError):  # no one waits any more
                    speak(self)

            do_POST = do_GET  # noqa: N815  (the base class's)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's)
                """Say nothing."""

        super().__init__(Handler)


def says(body: bytes, status: int = 200, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """The same answer to everybody; ``_`` in the name of a header stands for ``-``."""

    def speak(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return speak
