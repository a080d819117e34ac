"""Values that NVML gives by number instead of by a call of their own: many are read at once.

The numbers mean the same to every driver, up to 250. Those above stand in ``thermal``.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from struct import Struct
from typing import Any, NamedTuple

from exporter.gpu.backend import (
    NO_LABELS,
    BackendError,
    CardError,
    Failure,
    Missing,
    Reading,
    UnsupportedError,
)
from exporter.gpu.nvml import library
from exporter.gpu.nvml.probes import Found

ALL = 0xFFFFFFFF
"""The scope of a value that is the sum over all links."""

NARROW = frozenset((1, 5, 6))
"""Types of so few bits that a count of bytes or nanoseconds wraps within seconds."""

_RECORD = Struct("=IIqqIi8s")
"""``nvmlFieldValue_t``: number, scope, time, latency in microseconds, value type, error code, value."""

_TYPES = tuple(map(Struct, "dILQqiH"))
"""How the value is encoded, by its type. The rest of its bytes holds anything."""

_NONE = (None, 0xFFFFFFFF, 2**64 - 1, 2**64 - 1, None, None, 0xFFFF)
"""What an unsigned type holds where the driver has no value."""


class FieldId(NamedTuple):
    """NVML's number of a value, how many of what it counts make a base unit, and of which link it is."""

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
    """Values that are read together. For one thread: the memory is used again each time."""

    def __init__(self, ids: Iterable[FieldId]) -> None:
        # An entry that the driver leaves untouched stays an error, and no value of the last time.
        entries = [_RECORD.pack(each.number, each.scope, 0, 0, 0, library.UNKNOWN, b"") for each in ids]
        self._count = len(entries)
        self._asked = b"".join(entries)
        self._buffer = ctypes.create_string_buffer(len(self._asked))

    def ask(self, handle: Any) -> list[Answer]:
        """An answer for each number, in order. Raises ``library.Error`` if there is none at all."""
        self._buffer.raw = self._asked
        library.fill(handle, "GetFieldValues", self._count, self._buffer)
        return [
            Answer(code, kind, None if code else decode(kind, raw), max(0, micros) / 1e6)
            for _, _, _, micros, kind, code, raw in _RECORD.iter_unpack(self._buffer.raw)
        ]


def decode(kind: int, raw: bytes) -> float | None:
    """What the 8 bytes of a value hold, by its type; ``None`` if that is not a number."""
    if kind >= len(_TYPES):
        return None
    (found,) = _TYPES[kind].unpack_from(raw)
    return None if found == _NONE[kind] or not isfinite(found) else float(found)


class Field(NamedTuple):
    """A series: the first of its numbers that the driver answers.

    What has the same ``part`` and is missing altogether is listed in one line; without a ``part`` it
    is not listed. ``wide``: useless unless it is counted in 64 bits.
    """

    part: str
    metric: str
    ids: tuple[FieldId, ...]
    labels: Mapping[str, str] = NO_LABELS
    wide: bool = False


class Fields:
    """Fields of one GPU that are read together. For one thread.

    ``latency``: seconds that the driver took for the slowest of them when last read.
    """

    def __init__(self, fields: Iterable[Field]) -> None:
        self.latency = 0.0
        self._fields = tuple(fields)
        self._sizes = Counter(field.part for field in self._fields)
        self._batch = Batch(each for field in self._fields for each in field.ids)

    def read(self, handle: Any) -> list[Found]:
        """What the driver says of each; one name for all of a part that is missing altogether.

        Raises:
            library.Error: it says nothing at all.
            ReadError: the whole GPU or driver is gone.
        """
        answers = self._batch.ask(handle) if self._fields else []
        self.latency = max((answer.latency for answer in answers), default=0.0)
        rest = iter(answers)
        pairs = [(field, _found(field, [next(rest) for _ in field.ids])) for field in self._fields]
        lacking = Counter(field.part for field, found in pairs if isinstance(found, Missing))
        listed: list[Found] = []
        for field, found in pairs:
            if not isinstance(found, Missing):
                listed.append(found)
            elif field.part and lacking[field.part] == self._sizes[field.part]:
                listed.append(Missing(f"FieldValue({field.part})", found.reason))
            elif field.part:
                listed.append(found)
        return listed


def _found(field: Field, answers: Sequence[Answer]) -> Found:
    name = f"FieldValue({' '.join((field.part or field.metric, *field.labels.values()))})"
    for each, answer in zip(field.ids, answers, strict=True):
        if answer.code != library.OK:
            continue
        if answer.kind >= len(_TYPES):
            return Missing(name, "garbage")
        if field.wide and answer.kind in NARROW:
            return Missing(name, "wraps")
        if answer.value is None or answer.value < 0:
            return Failure(name, "garbage")
        return Reading(field.metric, answer.value / each.per, field.labels)
    problems = [library.problem(answer.code) for answer in answers]
    for problem in problems:  # what may pass goes before what the driver does not have
        if isinstance(problem, (CardError, BackendError)):
            raise problem
        if not isinstance(problem, UnsupportedError):
            return Failure(name, problem.code)
    return Missing(name, problems[0].code)
