"""One POST to a robot, with the environment's proxy, and with a limit for the whole answer."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from exporter import __version__

SECONDS = 8.0
"""For a whole answer. Alertmanager gives up a request after ten at the earliest, and then sends it again."""
_LARGEST = 64 << 10
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class PostError(Exception):
    """Raised when there is no answer; ``reason`` is ``timeout``, ``connection`` or ``answer``."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a POST would become a GET, lost but counted as taken."""

    def redirect_request(self, *_: Any) -> None:
        return None


def post(url: str, body: bytes) -> tuple[int, str]:
    """POST JSON; return the status and the text of the answer. Raises PostError."""
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"stepwatch/{__version__}"}
    request = urllib.request.Request(url, body, headers)  # noqa: S310  (a URL of the user's own)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if (urlsplit(url).hostname or "") in _LOOPBACK:
        handlers.append(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + SECONDS
    try:
        try:
            answer = urllib.request.build_opener(*handlers).open(request, timeout=SECONDS)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            return int(answer.status), _content(answer, deadline).decode("utf-8", "replace")
    except (http.client.HTTPException, ValueError) as problem:
        raise PostError("answer", f"the answer is cut off or not HTTP ({type(problem).__name__})") from None
    except OSError as problem:
        reason: Any = problem.reason if isinstance(problem, urllib.error.URLError) else problem
        if isinstance(reason, TimeoutError):
            raise PostError("timeout", f"no answer within {SECONDS:.0f} s") from None
        if isinstance(reason, ssl.SSLError):
            raise PostError("connection", f"TLS: {reason.reason or reason}") from None
        words = reason.strerror if isinstance(reason, OSError) else reason
        raise PostError("connection", str(words or type(reason).__name__)) from None


def _content(answer: Any, deadline: float) -> bytes:
    """Return a body, which must be as long as its head says, and come in time."""
    content = bytearray()
    while block := answer.read1(1 << 14):
        content += block
        if len(content) > _LARGEST:
            break
        if time.monotonic() > deadline:
            raise TimeoutError
    length = answer.headers.get("Content-Length")
    if length and length.isdecimal() and len(content) < int(length):
        raise http.client.IncompleteRead(bytes(content))
    return bytes(content)
