"""One request, with the headers of the answer."""

from __future__ import annotations

import http.client
from contextlib import closing
from http.client import HTTPMessage
from typing import NamedTuple


class Reply(NamedTuple):
    status: int
    headers: HTTPMessage
    body: bytes


def ask(
    address: str, path: str, method: str = "GET", body: bytes = b"", timeout: float = 60, **headers: str
) -> Reply:
    """One request; underscores in names of headers stand for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(http.client.HTTPConnection(address, timeout=timeout)) as connection:
        connection.request(method, path, body or None, named)
        with connection.getresponse() as answer:
            return Reply(answer.status, answer.headers, answer.read())
