"""Events as TensorBoard reads them: scalars, texts, and the start of an attempt.

Source: ``tensorflow/core/util/event.proto``, and ``summary.proto`` and ``tensor.proto`` in
``tensorflow/core/framework``.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from exporter.runs.readers.frames import frame
from exporter.runs.sources.protobuf import EIGHT_BYTES, FOUR_BYTES, SIZED, VARINT, coded, fields, key

_double, _float = struct.Struct("<d"), struct.Struct("<f")
_VERSION = b"brain.Event:2"
_DT_STRING = 7
_START = 1
_ATTEMPT = "attempt "
_TIME, _STEP, _SUMMARY = key(1, EIGHT_BYTES), key(2, VARINT), key(5, SIZED)
_LOG, _LAYOUT = key(7, SIZED), key(10, SIZED)
_VALUE = _TAG = key(1, SIZED)
_MESSAGE = key(3, SIZED)


def _sized(number: int, content: bytes) -> bytes:
    return bytes([key(number, SIZED)]) + coded(len(content)) + content


def _event(time: float, step: int, number: int, content: bytes, more: bytes = b"") -> bytes:
    """A frame with an event whose field of that number has this content."""
    head = bytes([key(1, EIGHT_BYTES)]) + _double.pack(time) + bytes([key(2, VARINT)]) + coded(step)
    return frame(head + _sized(number, content) + more)


def version(time: float) -> bytes:
    """The first event of each file."""
    return frame(bytes([key(1, EIGHT_BYTES)]) + _double.pack(time) + _sized(3, _VERSION))


@lru_cache(maxsize=1 << 15)
def _before(tag: str) -> bytes:
    """The bytes before the value of a tag."""
    value = _sized(1, tag.encode("utf-8", "replace")) + bytes([key(2, FOUR_BYTES)])
    return bytes([key(1, SIZED)]) + coded(len(value) + _float.size) + value


@lru_cache(maxsize=1 << 12)
def _layout(tags: tuple[str, ...]) -> bytes:
    """The field with the writer of an event, of which only readers of our own make use: which tags it has."""
    digest = blake2b("\0".join(tags).encode("utf-8", "replace"), digest_size=8).hexdigest()
    return _sized(10, _sized(1, f"stepwatch {digest}".encode()))


def scalars(time: float, step: int, tags: tuple[str, ...], numbers: bytes) -> bytes:
    """The values of a step: ``numbers`` holds four bytes for each tag, as floats in memory."""
    parts: list[bytes] = []
    for place, tag in enumerate(tags):
        parts += (_before(tag), numbers[4 * place : 4 * place + 4])
    return _event(time, step, 5, b"".join(parts), _layout(tags))


def text(time: float, step: int, tag: str, words: str) -> bytes:
    """A text in Markdown."""
    shape = _sized(2, _sized(2, bytes([key(1, VARINT)]) + coded(1)))
    tensor = bytes([key(1, VARINT), _DT_STRING]) + shape + _sized(8, words.encode("utf-8", "replace"))
    plugin = _sized(9, _sized(1, _sized(1, b"text")))
    value = _sized(1, tag.encode("utf-8", "replace")) + plugin + _sized(8, tensor)
    return _event(time, step, 5, _sized(1, value))


def start(time: float, step: int, attempt: int) -> bytes:
    """The start of another attempt: TensorBoard drops what it has from that step on."""
    log = bytes([key(1, VARINT), _START]) + _sized(3, f"{_ATTEMPT}{attempt}".encode())
    return _event(time, step, 7, log)


class Read(NamedTuple):
    """What an event that was written by this module says.

    Attributes:
        time: In seconds since the epoch.
        step: The step.
        tags: Of which it has values.
        attempt: That begins with it; ``None`` for any other event.
    """

    time: float
    step: int
    tags: tuple[str, ...]
    attempt: int | None


class Reader:
    """Reads events that this module wrote, those with the same tags as another one at little cost."""

    def __init__(self) -> None:
        self._tags: dict[bytes, tuple[str, ...]] = {}

    def read(self, payload: bytes) -> Read:
        """Read an event.

        Raises:
            ValueError: It is invalid.
        """
        found = dict(fields(payload))
        time = _double.unpack(found.get(_TIME, bytes(8)))[0]
        layout = found.get(_LAYOUT, b"")
        tags = self._tags.get(layout)
        if tags is None:
            values = (value for kind, value in fields(found.get(_SUMMARY, b"")) if kind == _VALUE)
            tags = tuple(dict(fields(value)).get(_TAG, b"").decode() for value in values)
            if layout:
                self._tags[layout] = tags
        attempt = None
        if log := found.get(_LOG):
            words = dict(fields(log)).get(_MESSAGE, b"").decode()
            if words.startswith(_ATTEMPT):
                attempt = int(words.removeprefix(_ATTEMPT))
        return Read(time, found.get(_STEP, 0), tags, attempt)
