"""Requests to servers that are not ours, and threads that ask again and again.

Answers are small, come in time, and from no other host than the one that was asked.
"""

from __future__ import annotations

import http.client
import ipaddress
import time
import urllib.error
import urllib.request
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event, Thread
from typing import IO, Any
from urllib.parse import SplitResult, urlsplit

from exporter.secret_shapes import masked, masked_url

LIMIT = 8 * 1024 * 1024  # bytes of the largest answer that is read, unpacked
_BLOCK = 64 * 1024
_GZIP = 31  # the window that has zlib expect a gzip header
_FAULTS = (OSError, http.client.HTTPException, ValueError)


class PollError(Exception):
    """Raised when a target cannot be polled: one sentence or two with the address, no secret in them."""

    def __init__(self, text: str) -> None:
        super().__init__(masked(text))  # servers echo the request


class RefusedError(PollError):
    """Raised when a server answers with an error: ``status`` is its number."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of an answer, unpacked, and its content type in lower case without parameters."""

    body: bytes
    kind: str


def get(
    url: str, headers: Mapping[str, str], seconds: float, body: bytes | None = None, *, most: int = LIMIT
) -> Answer:
    """GET an http or https address, or POST if there is a body, within ``seconds`` and ``most`` bytes.

    The headers go to no other host. Raises RefusedError where the server answered with an error, and
    PollError without an answer that is whole, small and fast enough.
    """
    deadline = time.monotonic() + seconds
    try:
        request = urllib.request.Request(  # noqa: S310  (looked at by _opener)
            url, body, {"Accept-Encoding": "gzip", **headers}
        )
    except ValueError:  # its text holds the URL
        raise PollError(f"{masked_url(url)} is not a URL.") from None
    try:
        with _opener(url).open(request, timeout=seconds) as answer:
            data = _unpacked(answer, _body(answer, deadline, seconds, most), most)
            kind = answer.headers.get_content_type() if "Content-Type" in answer.headers else ""
            return Answer(data, kind)
    except urllib.error.HTTPError as refusal:
        refusal.close()
        text = f"{masked_url(url)} answers {refusal.code} {refusal.reason}."
        raise RefusedError(text, refusal.code) from None
    except _FAULTS as problem:
        raise PollError(f"{masked_url(url)} gives no answer: {_reason(problem)}.") from None


def is_usable(url: str) -> bool:
    """Whether the URL is usable. A user name is refused: messages with the address would show it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _opener(url: str) -> urllib.request.OpenerDirector:
    if not is_usable(url):
        raise PollError(
            f"{masked_url(url)} is not an address that can be polled. "
            "Expected http:// or https:// and a host, without a user name."
        )
    # A proxy named in the environment is for the world outside.
    handlers: list[urllib.request.BaseHandler] = [_Redirects()]
    if _is_loopback(urlsplit(url).hostname):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _is_loopback(host: str | None) -> bool:
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


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
            raise PollError(
                f"{masked_url(req.full_url)} redirects to {masked_url(newurl)}, another server. Fix: set "
                "that address, if it is the right one."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or usual


def _body(answer: Any, deadline: float, seconds: float, most: int) -> bytes:
    """The body as it came; a server that sends a byte now and then does not get round the deadline."""
    parts, size = [], 0
    while part := answer.read1(_BLOCK):
        parts.append(part)
        size += len(part)
        if size > most:
            raise _too_large(most)
        if time.monotonic() > deadline:
            raise TimeoutError(f"incomplete after {seconds:g} s")
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
    return ValueError(f"it is larger than {most // 1024**2} MiB")


def _reason(problem: Exception) -> str:
    if isinstance(problem, http.client.IncompleteRead):
        return "the connection was closed early"
    if isinstance(problem, http.client.InvalidURL):  # its text holds a part of the URL
        return "it is not a URL"
    reason = getattr(problem, "reason", None) or problem
    text = getattr(reason, "strerror", None) or str(reason) or type(problem).__name__
    return str(text).rstrip(".")


class Poller(ABC):
    """Calls ``poll`` again and again from ``start`` on, in a thread of its own, if it is ``enabled``."""

    def __init__(self, name: str, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._wake, self._stop = Event(), Event()
        # A daemon: a server or a disk that hangs must not keep the exporter from ending.
        self._thread = Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def poll(self) -> float:
        """Poll once; returns the seconds until the next time."""

    def start(self) -> None:
        """Begin to poll, in the background."""
        if self._enabled:
            self._thread.start()

    def wake(self) -> None:
        """Poll at once."""
        self._wake.set()

    def stop(self) -> None:
        """Poll no more; a call that is under way ends by itself."""
        self._stop.set()
        self._wake.set()

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stop.is_set()

    def _run(self) -> None:
        while not self.stopped:
            self._wake.wait(self.poll())
            self._wake.clear()
