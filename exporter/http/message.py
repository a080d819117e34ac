"""HTTP messages: what a client asks, and what is sent back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from exporter.http.exposition import CONTENT_TYPE, Metric, page, process_metrics
from exporter.installation import adapt

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""Has no place in a path, and a lone line feed there would begin a line of an answer that repeats it."""


class Request(NamedTuple):
    """What a client asks for; HEAD comes as GET.

    ``query`` is what follows the question mark, both as they were sent. Names of ``headers`` are in
    lower case. ``client`` is the address that asks, and ``name`` what stood for the star of a route.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = {}
    body: bytes = b""
    client: str = ""
    name: str = ""


class Answer(NamedTuple):
    """What is sent back; ``status`` such as ``200 OK``, ``headers`` besides those of the body."""

    status: str
    kind: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def code(self) -> str:
        """The number of the status."""
        return self.status[:3]


Later = Callable[[], Answer]
"""Waits for others, and returns the answer."""

Pages = Callable[[Request], Answer | Later]
"""Returns the answer to a request at once, or what waits for it."""


def text(status: str, body: str, *headers: tuple[str, str]) -> Answer:
    """An answer in words."""
    shown = adapt(body).encode("utf-8", "backslashreplace")
    return Answer(status, "text/plain; charset=utf-8", shown, headers)


def metrics_page(metrics: Iterable[Metric]) -> Answer:
    """An answer with metrics, and those of the process."""
    return Answer("200 OK", CONTENT_TYPE, page([*metrics, *process_metrics()]).encode("utf-8", "replace"))


BAD_REQUEST = text("400 Bad Request", "this is not an HTTP request\n")
TOO_LONG = text("431 Request Header Fields Too Large", "the request is too long\n")
FAULT = text("500 Internal Server Error", "an internal error of Stepwatch: see its log\n")


class Head(NamedTuple):
    """The first lines of a request: ``target`` is path and query."""

    method: str
    target: str
    version: str
    headers: Mapping[str, str]

    @classmethod
    def parse(cls, lines: str) -> Head | None:
        """What the lines say; ``None`` if they are not the head of a request."""
        first, *fields = lines.split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1.") or _CONTROL.search(first):
            return None
        pairs = (field.partition(":") for field in fields)
        method, target, version = words
        return cls(method, target, version, {name.strip().lower(): value.strip() for name, _, value in pairs})

    @property
    def last(self) -> bool:
        """Whether the client closes the connection after this answer."""
        default = "keep-alive" if self.version == "HTTP/1.1" else "close"
        return self.headers.get("connection", default).lower() != "keep-alive"

    def size(self, most: int) -> int | Answer:
        """Bytes of the body, or why it is not taken: ``most`` is how many may come."""
        length = self.headers.get("content-length", "0")
        if "transfer-encoding" in self.headers:
            return text("411 Length Required", "Expected: a Content-Length.\n")
        if not (length.isascii() and length.isdecimal()):
            return BAD_REQUEST
        if len(length) > 12 or int(length) > most:
            return text("413 Content Too Large", f"The body is too long. Expected: at most {most} bytes.\n")
        return int(length)

    def request(self, body: bytes, client: str) -> Request:
        """The whole request."""
        path, _, query = self.target.partition("?")
        method = "GET" if self.method == "HEAD" else self.method
        return Request(method, path, query, self.headers, body, client)
