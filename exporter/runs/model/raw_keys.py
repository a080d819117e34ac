"""Numbers that no signal uses, shown under the trainer's own keys: few, and only those that may be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from exporter.runs.signals.reading import Reading

KEY_SETS = 16
"""Kinds of records that are remembered: with and without validation, a checkpoint, and so on."""

USUAL_LIMIT = 40
"""Raw keys of one run that are shown unless someone asks for more or fewer."""

LONGEST = 200
"""Characters of a key; Prometheus keeps each label's text for as long as the series."""

MOST_REFUSED = 10_000
"""Keys that are counted as refused; a trainer that makes up new ones each step fills no memory."""


@dataclass(frozen=True, slots=True)
class RawRule:
    """Which keys may be shown (patterns such as ``env/*``), and how many of one run."""

    allow: tuple[str, ...] = ("*",)
    limit: int = USUAL_LIMIT


class RawKeys:
    """The last values of one run under keys that no signal uses.

    ``kinds`` counts the sets of keys that came: as long as it is the same, so are the keys.
    """

    def __init__(self, rule: RawRule) -> None:
        self.kinds = 0
        self._rule = rule
        self._records: dict[tuple[str, ...], Mapping[str, Any]] = {}
        self._shown: dict[str, None] = {}
        self._refused: set[str] = set()

    def note(self, values: Mapping[str, Any]) -> None:
        """Take a record's values; they are looked at when they are asked for."""
        keys = tuple(values)
        if self._records.pop(keys, None) is None:
            self.kinds += 1
        self._records[keys] = values
        if len(self._records) > KEY_SETS:
            del self._records[next(iter(self._records))]

    def sources(self, reading: Reading) -> dict[str, tuple[str, ...]]:
        """Signal -> the keys that it was read from last."""
        found: dict[str, tuple[str, ...]] = {}
        for values in self._records.values():
            found.update(reading.sources(values))
        return found

    def values(self, reading: Reading, room: float = math.inf) -> dict[str, float]:
        """Value by key: of all that is allowed, what came first, up to the limit and where there is room."""
        latest = self.unmapped(reading)
        return {key: latest[key] for key in self._chosen(latest, min(self._rule.limit, room))}

    def unmapped(self, reading: Reading) -> dict[str, float]:
        """Value by key of all that no signal uses, whether or not it may be shown."""
        latest: dict[str, float] = {}
        for values in self._records.values():
            latest.update(reading.unmapped(values))
        return latest

    @property
    def more_than_usual(self) -> int:
        """How many more keys may be shown than by default."""
        return max(0, self._rule.limit - USUAL_LIMIT)

    @property
    def refused(self) -> int:
        """Keys that were allowed but came after the limit was reached, or had to make room."""
        return len(self._refused)

    def _chosen(self, keys: Iterable[str], most: float) -> list[str]:
        while len(self._shown) > most:
            self._refuse(self._shown.popitem()[0])
        chosen: list[str] = []
        for key in keys:
            if key not in self._shown:
                if key in self._refused or not self._is_allowed(key):
                    continue
                if len(self._shown) >= most:
                    self._refuse(key)
                    continue
                self._shown[key] = None
            chosen.append(key)
        return chosen

    def _refuse(self, key: str) -> None:
        if len(self._refused) < MOST_REFUSED:
            self._refused.add(key)

    def _is_allowed(self, key: str) -> bool:
        return len(key) <= LONGEST and any(fnmatchcase(key, pattern) for pattern in self._rule.allow)
