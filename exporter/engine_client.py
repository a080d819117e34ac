"""Asks Prometheus and Alertmanager by HTTP, as the user internal; small in memory."""

from __future__ import annotations

import re
import socket
import time
from base64 import b64encode
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from exporter.translatable import Text

SECONDS = 10.0
"""That an answer may take."""
LARGEST = 16 << 20
"""Bytes of an answer. Prometheus's page of metrics has some 200 kB."""
USER = "internal"


class UnreachableError(Exception):
    """Raised when there is no response; the text is the reason."""


class Reply(NamedTuple):
    """The status of an answer, such as 200, and its body."""

    status: int
    body: str


class Client:
    """Asks one server by HTTP, ``http://host:port``. Reads the password each time."""

    def __init__(self, address: str, password_file: str | None = None, seconds: float = SECONDS) -> None:
        self.address = address
        self._seconds, self._password_file = seconds, password_file
        parts = urlsplit(address)
        self._host, self._prefix = parts.netloc, parts.path.rstrip("/")
        self._socket = parts.hostname, parts.port or 80

    def get(self, path: str) -> Reply:
        """GET a page; raise UnreachableError if there is no answer, or the password cannot be read."""
        return self._ask("GET", path, [], b"")

    def post(self, path: str, kind: str, text: str) -> Reply:
        """POST a text of a content type; raise as ``get`` does."""
        body = text.encode()
        return self._ask("POST", path, [f"Content-Type: {kind}", f"Content-Length: {len(body)}"], body)

    def _ask(self, method: str, path: str, lines: list[str], body: bytes) -> Reply:
        # An answer to HTTP/1.0 is not chunked, and ends with the connection.
        request = f"{method} {self._prefix}{path} HTTP/1.0"
        head = [request, f"Host: {self._host}", *self._authorization(), *lines, "", ""]
        deadline = time.monotonic() + self._seconds
        answer = bytearray()
        try:
            with socket.create_connection(self._socket, self._seconds) as connection:
                connection.sendall("\r\n".join(head).encode() + body)
                while block := connection.recv(1 << 16):
                    answer += block
                    if len(answer) > LARGEST:
                        raise UnreachableError(Text("The response is too large"))
                    if time.monotonic() > deadline:
                        raise UnreachableError(Text("The response is too slow"))
        except OSError as problem:
            raise UnreachableError(problem.strerror or str(problem)) from None
        first, end, content = answer.partition(b"\r\n\r\n")
        words = first.split(b" ", 2)
        if not end or len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
            raise UnreachableError(Text("The response is not HTTP"))
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", first)
        if length and len(content) < int(length[1]):
            raise UnreachableError(Text("The response ends too early"))
        return Reply(int(words[1]), content.decode("utf-8", "replace"))

    def _authorization(self) -> list[str]:
        if self._password_file is None:
            return []
        try:
            with open(self._password_file, encoding="utf-8") as file:  # noqa: PTH123  (pathlib weighs 1 MB)
                password = file.read().strip()
        except OSError as problem:
            raise UnreachableError(f"{self._password_file}: {problem.strerror}") from None
        return [f"Authorization: Basic {b64encode(f'{USER}:{password}'.encode()).decode()}"]


def timestamp(text: str) -> float:
    """Return a time of Alertmanager's or Prometheus' API in Unix seconds. Raises ValueError."""
    whole, dot, rest = text.replace("Z", "+00:00").partition(".")
    if dot:  # Go writes as many digits as it needs, Python 3.10 reads three or six
        digits = len(rest) - len(rest.lstrip("0123456789"))
        whole += f".{rest[:digits][:6]:0<6}{rest[digits:]}"
    return datetime.fromisoformat(whole).timestamp()
