"""Who is to be called when: each in turn, spread over the time, new ones at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

CALL_SECONDS = 15.0
"""Between two calls of one address; a quarter more or less, so that they do not stay together."""


class Rounds:
    """The order of calls; times in seconds of the steady clock."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, str]] = []
        self._known: set[str] = set()

    def meet(self, addresses: set[str], now: float) -> None:
        """These are to be called from now on, and no others."""
        for address in addresses - self._known:
            heappush(self._queue, (now, address))
        self._queue = [entry for entry in self._queue if entry[1] in addresses]
        heapify(self._queue)
        self._known = set(addresses)

    def due(self, now: float, most: int) -> Iterator[str]:
        """Those that are to be called now, who has waited longest first."""
        while most > 0 and self._queue and self._queue[0][0] <= now:
            _, address = heappop(self._queue)
            heappush(self._queue, (now + CALL_SECONDS * random.uniform(0.75, 1.25), address))  # noqa: S311
            most -= 1
            yield address
