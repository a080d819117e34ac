"""Values that have a number instead of a call of their own: many are asked for at once."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from math import isfinite
from struct import Struct
from typing import Any, NamedTuple

from exporter.gpu.nvml import errors, library

ALL = 0xFFFFFFFF
"""The scope of a value that is the sum over all links."""

NARROW = frozenset((1, 5, 6))
"""Types of so few bits that a count of bytes or nanoseconds wraps within seconds."""

_RECORD = Struct("=IIqqIi8s")
"""``nvmlFieldValue_t``: number, scope, time, latency in microseconds, value type, error code, value."""

_TYPES = tuple(map(Struct, "dILQqiH"))
"""How the value is to be read, by its type. The rest of its bytes holds anything."""

_NONE = (None, 0xFFFFFFFF, 2**64 - 1, 2**64 - 1, None, None, 0xFFFF)
"""What an unsigned type holds where the driver has no value."""


class Way(NamedTuple):
    """A number to ask for, how many of what it counts make a base unit, and of which link it is."""

    number: int
    per: float = 1
    scope: int = 0


class Answer(NamedTuple):
    """``code`` is NVML's; ``value`` is ``None`` where there is no number; ``latency`` in seconds."""

    code: int
    kind: int
    value: float | None
    latency: float


class Batch:
    """Numbers that are asked for together. For one thread: the memory is used again each time."""

    def __init__(self, ways: Iterable[Way]) -> None:
        # An entry that the driver leaves untouched stays an error, and no value of the last time.
        entries = [_RECORD.pack(way.number, way.scope, 0, 0, 0, errors.UNKNOWN, b"") for way in ways]
        self._count = len(entries)
        self._asked = b"".join(entries)
        self._buffer = ctypes.create_string_buffer(len(self._asked))

    def ask(self, handle: Any) -> list[Answer]:
        """An answer for each number, in order. Raises ``library.Error`` if there is none at all."""
        self._buffer.raw = self._asked
        library.fill(handle, "GetFieldValues", self._count, self._buffer)
        return [_answer(*entry) for entry in _RECORD.iter_unpack(self._buffer.raw)]


def _answer(_number: int, _scope: int, _at: int, micros: int, kind: int, code: int, raw: bytes) -> Answer:
    found = None if code else value(kind, raw)
    return Answer(code, kind, found, max(0, micros) / 1e6)


def known(kind: int) -> bool:
    """Is this one of NVML's value types?"""
    return kind < len(_TYPES)


def value(kind: int, raw: bytes) -> float | None:
    """What the 8 bytes of a value hold, by its type; ``None`` if that is not a number."""
    if not known(kind):
        return None
    (found,) = _TYPES[kind].unpack_from(raw)
    return None if found == _NONE[kind] or not isfinite(found) else float(found)
