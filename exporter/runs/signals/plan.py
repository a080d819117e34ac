"""What to read from the records of one set of keys.

Trainers log the same keys again and again. Which of them carry which signal is worked out once
for each set; a record then costs little more than its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from exporter.runs.signals.axes import AXES
from exporter.runs.signals.keys.key import Key, normal
from exporter.runs.signals.numbers import number
from exporter.runs.signals.table import Table, holds, needed
from exporter.runs.stats.catalogue import ZERO_MEANS_NOT_MEASURED

Part = tuple[str, str]
"""A signal, and the name of one of its parts."""

_AS_WRITTEN = frozenset({float, int, str})
"""Types whose values are nearly always numbers; a boolean is none."""


class Source(NamedTuple):
    """A key of the table, bound to the spelling of its names in this log.

    ``gathered``: its keys are as many as happened to match.
    """

    keys: tuple[str, ...]
    formula: Callable[..., float | None] | None
    scale: float
    gathered: bool

    def value(self, values: Mapping[str, Any]) -> float | None:
        """The signal's value; ``None`` if something that it needs is no number."""
        numbers = [number(values[key]) for key in self.keys]
        if any(found is None for found in numbers):
            return None
        found = self.formula(*numbers) if self.formula else numbers[0]
        return None if found is None else found * self.scale


Sources = tuple[Source, ...]


class Plan:
    """Signals, parts and other keys of records that all hold the same keys.

    ``used`` are the keys that some signal is read from.
    """

    def __init__(self, table: Table, present: Mapping[str, str], seen: AbstractSet[str]) -> None:
        self._sources = dict(_bound(table, present, seen))
        plain = {signal: found[0] for signal, found in self._sources.items() if _is_plain(signal, found)}
        self._plain = tuple(plain)
        self._keys = tuple(source.keys[0] for source in plain.values())
        self._scales = tuple((signal, source.scale) for signal, source in plain.items() if source.scale != 1)
        self._others = {signal: found for signal, found in self._sources.items() if signal not in plain}
        self.used = set(_used(self._sources))
        self.parts: tuple[tuple[Part, str], ...] = ()
        self.unmapped: tuple[str, ...] = ()

    def split(self, keys: tuple[str, ...], parts: dict[str, Part]) -> None:
        """Say which of the record's keys are parts; the rest are the unmapped ones."""
        self.parts = tuple((part, key) for key, part in parts.items())
        rest = (key for key in keys if key not in self.used and key not in parts)
        self.unmapped = tuple(key for key in rest if normal(key) not in AXES)

    def signals(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Signal -> value."""
        numbers = _numbers([values[key] for key in self._keys])
        if None in numbers:
            return _read(self._sources, values)
        found: dict[str, float] = dict(zip(self._plain, numbers, strict=True))  # type: ignore[arg-type]
        for signal, scale in self._scales:
            found[signal] *= scale
        if self._others:
            found.update(_read(self._others, values))
        return found

    def taken(self, values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """Signal -> the keys that its value is read from."""
        read = self.signals(values)
        return {
            signal: next(source.keys for source in found if _alike(source.value(values), read[signal]))
            for signal, found in self._sources.items()
            if signal in read
        }


def _alike(value: float | None, read: float) -> bool:
    return value == read or (value is not None and math.isnan(value) and math.isnan(read))


def _numbers(written: list[Any]) -> list[float | None]:
    """All of ``number(raw)``, at once where nothing is out of the ordinary."""
    try:
        if _AS_WRITTEN.issuperset(map(type, written)):
            return list(map(float, written))
    except ValueError:
        pass
    return list(map(number, written))


def _bound(table: Table, present: Mapping[str, str], seen: AbstractSet[str]) -> Iterator[tuple[str, Sources]]:
    for signal, keys in table:
        found = tuple(source for key in keys if holds(key, seen) and (source := _source(key, present)))
        if found:
            yield signal, found


def _source(key: Key, present: Mapping[str, str]) -> Source | None:
    found = needed(key, present)
    return Source(found, key.formula, key.scale, bool(key.pattern)) if found else None


def _is_plain(signal: str, found: Sources) -> bool:
    """Is the signal one key's value, whatever that is?"""
    return found[0].formula is None and (len(found) == 1 or signal not in ZERO_MEANS_NOT_MEASURED)


def _used(bound: Mapping[str, Sources]) -> Iterator[str]:
    """Keys that a signal is read from; what is only averaged or summed is still worth a look of its own."""
    for signal, found in bound.items():
        for source in found if signal in ZERO_MEANS_NOT_MEASURED else found[:1]:
            if not source.gathered:
                yield from source.keys


def _read(bound: Mapping[str, Sources], values: Mapping[str, Any]) -> dict[str, float]:
    """The first source of each signal that is a number; a zero that says nothing gives way."""
    read: dict[str, float] = {}
    for signal, found in bound.items():
        for source in found:
            value = source.value(values)
            if value is not None:
                read[signal] = value
                if value or signal not in ZERO_MEANS_NOT_MEASURED:
                    break
    return read
