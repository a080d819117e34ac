"""Numbers in TensorFlow's tensors.

Source: ``tensorflow/core/framework/tensor.proto`` and ``types.proto``.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any

from exporter.runs.sources.protobuf import SIZED, VARINT, fields, key, varint

TYPE = key(1, VARINT)
MEMORY = key(4, SIZED)


@dataclass(frozen=True)
class _Kind:
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
    """The number in a tensor of one element; ``None`` for any other tensor.

    Raises:
        ValueError: the bytes are no tensor.
    """
    found = dict(fields(tensor))
    kind = _KINDS.get(found.get(TYPE, 0))
    if kind is None:
        return None
    memory = found.get(MEMORY) or _from_list(found, kind)
    if len(memory) != kind.layout.size:
        return None
    return float(kind.layout.unpack(memory)[0])


def _from_list(found: dict[int, Any], kind: _Kind) -> bytes:
    """The memory of listed elements; of one, where each is a varint. Empty if there is none."""
    listed: bytes = found.get(kind.listed, b"")
    if kind.exact or not listed:
        return listed
    number, end = varint(listed, 0)
    whole = number.to_bytes(8, "little")
    return whole[: kind.layout.size] if end == len(listed) else b""
