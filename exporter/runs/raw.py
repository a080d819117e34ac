"""Numbers that no signal uses, shown under the trainer's own keys: few, and only those that may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from exporter.runs.signals.reading import Reading

KEY_SETS = 16
"""Kinds of records that are remembered: with and without validation, a checkpoint, and so on."""

LONGEST = 200
"""Characters of a key; Prometheus keeps each label's text for as long as the series."""

MOST_REFUSED = 10_000
"""Keys that are counted as refused; a trainer that makes up new ones each step fills no memory."""


@dataclass(frozen=True, slots=True)
class RawRule:
    """Which keys may be shown (patterns such as ``env/*``), and how many of one run."""

    allow: tuple[str, ...] = ("*",)
    limit: int = 40


class RawKeys:
    """The last values of one run under keys that no signal uses."""

    def __init__(self, rule: RawRule) -> None:
        self._rule = rule
        self._records: dict[tuple[str, ...], Mapping[str, Any]] = {}
        self._shown: set[str] = set()
        self._refused: set[str] = set()

    def note(self, values: Mapping[str, Any]) -> None:
        """Take a record's values; they are looked at when they are asked for."""
        keys = tuple(values)
        self._records.pop(keys, None)
        self._records[keys] = values
        if len(self._records) > KEY_SETS:
            del self._records[next(iter(self._records))]

    def values(self, reading: Reading) -> dict[str, float]:
        """Value by key: of all that is allowed, what came first, up to the limit."""
        latest: dict[str, float] = {}
        for values in self._records.values():
            latest.update(reading.unmapped(values))
        return {key: latest[key] for key in self._chosen(latest)}

    @property
    def refused(self) -> int:
        """Keys that were allowed but came after the limit was reached."""
        return len(self._refused)

    def _chosen(self, keys: Iterable[str]) -> list[str]:
        return [key for key in keys if self._is_shown(key)]

    def _is_shown(self, key: str) -> bool:
        if key in self._shown:
            return True
        if key in self._refused or not self._is_allowed(key):
            return False
        if len(self._shown) < self._rule.limit:
            self._shown.add(key)
            return True
        if len(self._refused) < MOST_REFUSED:
            self._refused.add(key)
        return False

    def _is_allowed(self, key: str) -> bool:
        return len(key) <= LONGEST and any(fnmatchcase(key, pattern) for pattern in self._rule.allow)
