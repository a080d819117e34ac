"""A request to another server: limited in time and size, with words for why there is no answer."""

from __future__ import annotations

import http.client
import ipaddress
import ssl
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from typing import IO, Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from exporter.translatable import Text

LIMIT = 8 << 20
"""Bytes of the largest answer that is read, unpacked."""
_BLOCK = 64 << 10
_GZIP = 31  # the window that has zlib expect a gzip header


class NoAnswerError(Exception):
    """Raised without a complete answer; ``reason`` is ``timeout``, ``connection`` or ``answer``."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class ElsewhereError(Exception):
    """Raised when a server redirects to another one, ``url``."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class Reply(NamedTuple):
    """A status, a body, unpacked, and its content type in lower case without parameters."""

    status: int
    body: bytes
    kind: str = ""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


def ask(
    url: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    *,
    seconds: float,
    most: int = LIMIT,
    follow: bool = False,
    direct: bool = False,
) -> Reply:
    """GET an http or https address, or POST if there is a body, within ``seconds`` and ``most`` bytes.

    Redirects within the server are followed on demand. ``direct``: not by the environment's proxy, which is
    for the world outside. Raises NoAnswerError, and ElsewhereError for a redirect to another server.
    """
    deadline = time.monotonic() + seconds
    handlers: list[urllib.request.BaseHandler] = [_Redirects() if follow else _NoRedirects()]
    if direct or _is_loopback(url):
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, body, {"Accept-Encoding": "gzip", **headers})  # noqa: S310
        try:
            answer = urllib.request.build_opener(*handlers).open(request, timeout=seconds)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            packed = _body(answer, deadline, seconds, most)
            kind = answer.headers.get_content_type() if "Content-Type" in answer.headers else ""
            return Reply(int(answer.status), _unpacked(answer, packed, most), kind)
    except http.client.InvalidURL:  # its text holds a part of the URL
        raise NoAnswerError("answer", Text("it is not a URL")) from None
    except http.client.IncompleteRead:
        raise NoAnswerError("answer", Text("the connection was closed early")) from None
    except (http.client.HTTPException, ValueError) as problem:
        words = problem.args[0] if problem.args and isinstance(problem.args[0], str) else ""
        raise NoAnswerError("answer", words or type(problem).__name__) from None
    except OSError as problem:
        raise _unreached(problem, seconds) from None


def _unreached(problem: OSError, seconds: float) -> NoAnswerError:
    reason: Any = problem.reason if isinstance(problem, urllib.error.URLError) else problem
    if isinstance(reason, TimeoutError):
        if reason.args and isinstance(reason.args[0], Text):
            return NoAnswerError("timeout", reason.args[0])
        return NoAnswerError("timeout", Text("no answer within {seconds} s", seconds=f"{seconds:g}"))
    if isinstance(reason, ssl.SSLError):
        return NoAnswerError("connection", f"TLS: {reason.reason or reason}")
    words = getattr(reason, "strerror", None) or reason
    return NoAnswerError("connection", str(words) or type(reason).__name__)


def _body(answer: Any, deadline: float, seconds: float, most: int) -> bytes:
    """The body as it came; a server that sends a byte now and then does not get round the deadline."""
    parts, size = [], 0
    while part := answer.read1(_BLOCK):
        parts.append(part)
        size += len(part)
        if size > most:
            raise _too_large(most)
        if time.monotonic() > deadline:
            raise TimeoutError(Text("incomplete after {seconds} s", seconds=f"{seconds:g}"))
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _unpacked(answer: Any, data: bytes, most: int) -> bytes:
    packing = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if packing == "identity":
        return data
    if packing != "gzip":
        raise ValueError(f"unexpected Content-Encoding {packing[:20]!r}")
    unpacker = zlib.decompressobj(_GZIP)
    try:
        plain = unpacker.decompress(data, most + 1)
    except zlib.error:
        raise ValueError("its gzip data is broken") from None
    if len(plain) > most:
        raise _too_large(most)
    if not unpacker.eof:
        raise ValueError("its gzip data is cut off")
    return plain


def _too_large(most: int) -> ValueError:
    return ValueError(Text("it is larger than {most} MiB", most=most >> 20))


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A POST would become a GET, lost but counted as taken."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a server within itself: elsewhere a token must not go."""

    def redirect_request(  # noqa: PLR0917  (the base class's)
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if _origin(urlsplit(newurl)) != _origin(urlsplit(req.full_url)):
            fp.close()
            raise ElsewhereError(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or usual
