"""Drop clients that do not get on: aiohttp waits for a request's head for ever."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from aiohttp.web import RequestHandler

MOST_CLIENTS = 256
HEAD_SECONDS = 15.0
"""From a connection's beginning to its first request."""
BODY_SECONDS = 30.0
IDLE_SECONDS = 60.0
"""From an answer to the next request."""
WRITE_SECONDS = 60.0
"""For a client to take the next part of an answer."""


class Clients:
    """The connections of the door, each with the time until which it must get on.

    ``dropped`` counts those that were let go: ``slow``, or ``surplus`` when there were too many.
    """

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter({"slow": 0, "surplus": 0})
        self._until: dict[RequestHandler, float] = {}

    def within(self, client: RequestHandler, seconds: float) -> None:
        """Give a client so many seconds, from now on; ``inf`` while it waits for us."""
        self._until[client] = time.monotonic() + seconds

    def look(self, present: Sequence[RequestHandler]) -> None:
        """Drop the late ones among those present; to be called every second or so."""
        now = time.monotonic()
        self._until = {client: self._until.get(client, now + HEAD_SECONDS) for client in present}
        for client in [client for client, until in self._until.items() if until < now]:
            self._drop(client, "slow")
        # Those that we keep waiting come last: they have asked for something.
        for client in sorted(self._until, key=self._until.__getitem__)[
            : max(0, len(self._until) - MOST_CLIENTS)
        ]:
            self._drop(client, "surplus")

    def _drop(self, client: RequestHandler, reason: str) -> None:
        del self._until[client]
        self.dropped[reason] += 1
        if client.transport:
            client.transport.abort()  # close() would wait for the client to read
