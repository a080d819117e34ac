"""A program behind the door that tells what it was asked, or misbehaves."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler

LARGE = 64 << 20
"""Bytes of the answer to /large."""


class Backend(BaseHTTPRequestHandler):
    """Tells what it was asked; misbehaves where the path says so."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/large":
            self._large()
        elif self.path == "/dies":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nhello\r\n")
            self.close_connection = True
        elif self.path == "/401":
            self._tell(401, b"")
        elif self.path == "/silent":
            time.sleep(10)
        else:
            length = int(self.headers.get("Content-Length", 0))
            reported = {
                "path": self.path,
                "method": self.command,
                "body": self.rfile.read(length).decode("latin-1"),
                "headers": self.headers.items(),
            }
            self._tell(200, json.dumps(reported).encode())

    do_POST = do_GET  # noqa: N815  (the base class's name)

    def _tell(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "X-Hop")
        self.send_header("X-Hop", "1")
        self.send_header("X-End", "1")
        self.end_headers()
        self.wfile.write(body)

    def _large(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        part = b"x" * 65536
        try:
            for _ in range(LARGE // len(part)):
                self.wfile.write(b"10000\r\n" + part + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""
