"""Lets pass what may become a target. What goes wrong in finding servers is counted, and logged once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from exporter.runs.files.notice import Once
from exporter.runs.rollouts.address import AddressError, Allowed

logger = logging.getLogger(__name__)

MOST = 5000
"""Addresses of one list, and targets in all: more than any cluster has."""


class Gate:
    """``counts`` what was refused, by source and reason."""

    def __init__(self, allowed: Allowed) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._allowed, self._once = allowed, Once(logger)

    def passed(self, source: str, place: object, addresses: Sequence[str]) -> tuple[str, ...]:
        """Those of a list that are allowed, each once. ``place`` is where the list stands."""
        if len(addresses) > MOST:
            self.note(source, "too_many", f"{place} lists {len(addresses)} servers; the first {MOST} count")
        return tuple(dict.fromkeys(self._allowed_of(source, place, addresses[:MOST])))

    def _allowed_of(self, source: str, place: object, addresses: Iterable[str]) -> Iterable[str]:
        for address in addresses:
            try:
                yield self._allowed.checked(address)
            except AddressError as problem:  # noqa: PERF203  (one bad address must not end the list)
                self.note(source, "address", f"{place}: {problem}")

    def note(self, source: str, reason: str, words: str, fault: Exception | None = None) -> None:
        """Count it; ``words`` say where, what, and the fix. ``fault``: it is one of ours."""
        self.counts[source, reason] += 1
        self._once.warn((source, reason), f"{source}: {words}.", fault)
