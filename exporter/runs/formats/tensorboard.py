"""TensorBoard's event files, one event at a time: ``wall_time, step, summary {value {tag, simple_value}}``.

Writers of the first version (PyTorch's, tensorboardX) log floats; those of the second (TensorFlow's)
log tensors and name the plugin that shows a tag, some only the first time. Most write one scalar an
event, so the scalars of a step are gathered until another step begins or the log pauses.

Source: ``tensorflow/core/util/event.proto``, and ``summary.proto``, ``tensor.proto`` and ``types.proto`` in
``tensorflow/core/framework``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from exporter.runs.formats.base import Source
from exporter.runs.formats.protobuf import EIGHT_BYTES, FOUR_BYTES, SIZED, VARINT, coded, fields, key, varint
from exporter.runs.signals import NONE_MAPPED, Mapped
from exporter.runs.signals.record import STEP_LIMIT, Event, Record

TYPE = key(1, VARINT)
MEMORY = key(4, SIZED)


class _Kind(NamedTuple):
    """How an element lies in memory, and the field that lists elements; ``exact``: as in memory."""

    layout: Struct
    listed: int
    exact: bool = False


_KINDS = {
    1: _Kind(Struct("<f"), key(5, SIZED), exact=True),
    2: _Kind(Struct("<d"), key(6, SIZED), exact=True),
    3: _Kind(Struct("<i"), key(7, SIZED)),
    4: _Kind(Struct("<B"), key(7, SIZED)),
    5: _Kind(Struct("<h"), key(7, SIZED)),
    6: _Kind(Struct("<b"), key(7, SIZED)),
    9: _Kind(Struct("<q"), key(10, SIZED)),
    17: _Kind(Struct("<H"), key(7, SIZED)),
    19: _Kind(Struct("<e"), key(13, SIZED)),
    22: _Kind(Struct("<I"), key(16, SIZED)),
    23: _Kind(Struct("<Q"), key(17, SIZED)),
}
"""By TensorFlow's number of the type: float, double, int32, uint8, int16, int8, int64, uint16, half, uint32,
uint64."""


def single(tensor: bytes) -> float | None:
    """The number in a tensor of one element; ``None`` for any other tensor. Raises ValueError."""
    found = dict(fields(tensor))
    kind = _KINDS.get(found.get(TYPE, 0))
    if kind is None:
        return None
    memory: bytes = found.get(MEMORY) or found.get(kind.listed, b"")
    if memory and not found.get(MEMORY) and not kind.exact:  # listed elements are varints
        integer, end = varint(memory, 0)
        memory = integer.to_bytes(8, "little")[: kind.layout.size] if end == len(memory) else b""
    return float(kind.layout.unpack(memory)[0]) if len(memory) == kind.layout.size else None


TAGS = 10_000  # that many tags are known, and gathered in one record. No trainer has as many.
LONGEST_TAG = 1000  # in bytes; a bound for what is kept in memory, as well
_WALL_TIME, _STEP, _VERSION, _SUMMARY = key(1, EIGHT_BYTES), key(2, VARINT), key(3, SIZED), key(5, SIZED)
_VALUE = key(1, SIZED)
_TAG, _FLOAT, _TENSOR, _METADATA = key(1, SIZED), key(2, FOUR_BYTES), key(8, SIZED), key(9, SIZED)
_PLUGIN = _NAME = key(1, SIZED)

_START = (
    rb"\x09(.{8})(?:\x10([\x80-\xff]{0,9}[\0-\x7f]))?"  # wall time, step
    rb"\x2a([\0-\x7f])\x0a([\0-\x7f])\x0a([\0-\x7f])(.{0,116})"  # lengths of summary, value and tag; tag
)
_SHORT_FLOAT = re.compile(_START + rb"\x15(.{4})", re.DOTALL)
_SCALARS = b"J\x0d\x0a\x09\x0a\x07scalars\x20\x01"
_SHORT_TENSOR = re.compile(_START + rb"B\x0a\x08\x01\x12\0[\x22\x2a]\x04(.{4})" + _SCALARS, re.DOTALL)
"""Nearly every event is one of these: a single float, in either version. Only if the lengths are right."""
BY_SECONDS = ("ray/node.", "ray/ray/ray_step")
"""NeMo-RL logs the load of its nodes there, and as step the seconds since its start."""
_BEFORE_STEP = 9
_FLOAT_END = 4
_TENSOR_END = 4 + len(_SCALARS)  # bytes of such an event before its step, and from its number on
_double = Struct("<d").unpack
_float = Struct("<f").unpack
_float_at = Struct("<f").unpack_from
_UNKNOWN = "", None
_NOTHING: Iterator[Event] = iter(())  # an iterator that is at its end stays there: one is enough for all
_Scalars = list[tuple[str, float]]


class Streams:
    """Which of a trainer's counters a tag's steps belong to.

    Some trainers count several things, each with tags of its own (slime: rollouts and updates). A lower
    step is such a count if it is not lower than the last of tags with the same first part: from then on
    that part is a stream of its own. Any other lower step is passed on: the trainer resumed.
    """

    def __init__(self) -> None:
        self._step = -1
        self._last: dict[str, int] = {}
        self._apart: set[str] = set()

    def of(self, part: str, step: int) -> str:
        """The stream of a scalar whose tag has that first part; one call a step will do."""
        if part not in self._last and len(self._last) >= TAGS:
            return ""
        if self._last.get(part, -1) <= step < self._step:
            self._apart.add(part)
        self._last[part] = step
        if part in self._apart:
            return part
        self._step = step
        return ""


class TensorBoard(Source):
    """Scalars of an event file, whichever framework wrote them."""

    name = "tensorboard"

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._gathered: Record | None = None
        self._values: dict[str, float] = {}
        self._parts: set[str] = set()
        self._step = b""
        self._shapes: dict[bytes, tuple[str, str]] = {}
        self._scalars: set[str] = set()
        self._streams = Streams()

    def recognises(self, line: bytes) -> bool:
        if b"brain.Event:" not in line[:64]:
            return False
        try:
            return bytes(dict(fields(line)).get(_VERSION, b"")).startswith(b"brain.Event:")
        except ValueError:
            return False

    def parse(self, line: bytes) -> Iterator[Event]:
        """As any source's. Most events only add a scalar to the record that is being gathered.

        Such an event has the record's step, and between step and number the bytes of one that was
        taken apart before. So it has the same form: its time, which does not matter, and its number
        are all that is new.
        """
        if line.startswith(self._step, _BEFORE_STEP) and line[0] == _WALL_TIME:
            end = len(line) - (_TENSOR_END if line.endswith(_SCALARS) else _FLOAT_END)
            tag, part = self._shapes.get(line[_BEFORE_STEP + len(self._step) : end], _UNKNOWN)
            if part in self._parts and self._has_room(tag):
                self._values[tag] = _float_at(line, end)[0]
                return _NOTHING
        return self._parse(line)

    def flush(self) -> Iterator[Event]:
        """The step that may not be complete yet; what comes later of it is another record."""
        gathered, self._gathered = self._gathered, None
        self._parts.clear()
        if gathered is not None:
            yield gathered

    def _parse(self, line: bytes) -> Iterator[Event]:
        time, step, scalars = self._short(line) or self._long(line)
        if scalars and step >= STEP_LIMIT:  # negative ones are as high: they are read unsigned
            raise ValueError("invalid record: the step number is too high")
        for tag, value in scalars:
            if tag.startswith(BY_SECONDS):
                continue
            part = tag.partition("/")[0]
            stream = self._streams.of(part, step)
            record = self._gathered
            continues = record is not None and record.step == step and record.stream == stream
            if not (continues and self._has_room(tag)):
                yield from self.flush()
                self._values = {}
                self._gathered = Record(step, self._values, time, stream)
                self._step = bytes([_STEP]) + coded(step) if step else b""
            self._parts.add(part)
            self._values[tag] = value

    def _has_room(self, tag: str) -> bool:
        return tag not in self._values and len(self._values) < TAGS

    def _short(self, payload: bytes) -> tuple[float | None, int, _Scalars] | None:
        """What the usual form of an event says; ``None`` if this one has another form."""
        form = _SHORT_TENSOR if payload.endswith(_SCALARS) else _SHORT_FLOAT
        found = form.fullmatch(payload)
        if found is None:
            return None
        time, step, summary, value, length, tag, number = found.groups()
        value_length = len(payload) - found.start(5) + 1
        if length[0] != len(tag) or value[0] != value_length or summary[0] != value_length + 2:
            return None
        name = tag.decode()
        if form is _SHORT_TENSOR:
            self._known(name)
        if len(self._shapes) < TAGS and not name.startswith(BY_SECONDS):
            self._shapes[payload[found.start(3) - 1 : found.start(7)]] = name, name.partition("/")[0]
        return _seconds(time), _step(step), [(name, _float(number)[0])]

    def _long(self, payload: bytes) -> tuple[float | None, int, _Scalars]:
        found = dict(fields(payload))
        values = (value for kind, value in fields(found.get(_SUMMARY, b"")) if kind == _VALUE)
        scalars = [scalar for value in values if (scalar := self._scalar(value))]
        return _seconds(found.get(_WALL_TIME)), found.get(_STEP, 0), scalars

    def _scalar(self, value: bytes) -> tuple[str, float] | None:
        found = dict(fields(value))
        name: bytes = found.get(_TAG, b"")
        if len(name) > LONGEST_TAG:
            raise ValueError("invalid record: the tag is too long")
        tag = name.decode()
        if _FLOAT in found:
            return tag, _float(found[_FLOAT])[0]
        if _METADATA in found:
            plugin = dict(fields(found[_METADATA])).get(_PLUGIN, b"")
            if dict(fields(plugin)).get(_NAME) == b"scalars":  # shown as a curve
                self._known(tag)
        number = single(found.get(_TENSOR, b"")) if tag in self._scalars else None
        return None if number is None else (tag, number)

    def _known(self, tag: str) -> None:
        """That tag's tensors are scalars."""
        if len(self._scalars) < TAGS:
            self._scalars.add(tag)


@lru_cache(maxsize=64)
def _step(raw: bytes | None) -> int:
    return varint(raw, 0)[0] if raw else 0


def _seconds(wall_time: bytes | None) -> float | None:
    """Seconds since the epoch."""
    seconds = math.nan if wall_time is None else _double(wall_time)[0]
    return seconds if math.isfinite(seconds) else None
