"""Requests to servers that are not ours, and threads that ask again and again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from http.client import responses
from threading import Event, Thread
from urllib.parse import urlsplit

from exporter.http_client import LIMIT, ElsewhereError, NoAnswerError, Reply, ask
from exporter.secret_shapes import masked, masked_url


class PollError(Exception):
    """Raised without a usable answer: the address and no secret; ``status`` of an error, else 0."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(masked(text))  # servers echo the request
        self.status = status


def get(
    url: str, headers: Mapping[str, str], seconds: float, body: bytes | None = None, *, most: int = LIMIT
) -> Reply:
    """GET an address, or POST if there is a body; the headers go to no other host.

    Raises PollError for an error, and without an answer that is whole, small and fast enough.
    """
    shown = masked_url(url)
    if not is_usable(url):
        raise PollError(
            f"{shown} is not an address that can be polled. "
            "Expected http:// or https:// and a host, without a user name."
        )
    try:
        reply = ask(url, headers, body, seconds=seconds, most=most, follow=True)
    except ElsewhereError as other:
        raise PollError(
            f"{shown} redirects to {masked_url(other.url)}, another server. Fix: set "
            "that address, if it is the right one."
        ) from None
    except NoAnswerError as problem:
        words = str(problem).strip().rstrip(".")
        raise PollError(f"{shown} gives no answer: {words}.") from None
    if reply.status >= 300:  # a redirect that leads nowhere too
        phrase = f"{reply.status} {responses.get(reply.status, '')}".strip()
        raise PollError(f"{shown} answers {phrase}.", reply.status)
    return reply


def is_usable(url: str) -> bool:
    """Whether the URL is usable. A user name is refused: messages with the address would show it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


class Poller(ABC):
    """Calls ``poll`` again and again from ``start`` on, in a thread of its own, if it is ``enabled``."""

    def __init__(self, name: str, *, enabled: bool = True) -> None:
        self._enabled, self.stopped = enabled, False
        self._wake = Event()
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
        self.stopped = True
        self._wake.set()

    def _run(self) -> None:
        while not self.stopped:
            self._wake.wait(self.poll())
            self._wake.clear()
