"""Questions to Prometheus, Alertmanager and our own parts, signed in where they want it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from exporter import credentials
from exporter.http_client import NoAnswerError, Reply, ask

SECONDS = 10.0
"""That an answer may take."""
LARGEST = 16 << 20
"""Bytes of an answer. Prometheus's page of metrics has some 200 kB."""


class Client:
    """Asks one server, ``http://host:port``; its password is read for each request."""

    def __init__(self, address: str, password_file: Path | None = None, seconds: float = SECONDS) -> None:
        self.address = address
        self._password_file, self._seconds = password_file, seconds

    def get(self, path: str) -> Reply:
        """GET a page; raise NoAnswerError without an answer, or where the password cannot be read."""
        return self._ask(path, {}, None)

    def post(self, path: str, value: Any) -> Reply:
        """POST a value as JSON; raise as ``get`` does."""
        return self._ask(path, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _ask(self, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        try:
            login = credentials.login(self._password_file)
        except OSError as problem:
            raise NoAnswerError("connection", f"{self._password_file}: {problem.strerror}") from None
        url = f"{self.address.rstrip('/')}{path}"
        return ask(url, {**login, **headers}, body, seconds=self._seconds, most=LARGEST, direct=True)


def timestamp(text: str) -> float:
    """Return a time of Alertmanager's or Prometheus' API in Unix seconds. Raises ValueError."""
    whole, dot, rest = text.replace("Z", "+00:00").partition(".")
    if dot:  # Go writes as many digits as it needs, Python 3.10 reads three or six
        digits = len(rest) - len(rest.lstrip("0123456789"))
        whole += f".{rest[:digits][:6]:0<6}{rest[digits:]}"
    return datetime.fromisoformat(whole).timestamp()
