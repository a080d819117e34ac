"""The wire format of protocol buffers (https://protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5
"""How a field's value is written: the lowest three bits of its key."""
_FIXED = {EIGHT_BYTES: 8, FOUR_BYTES: 4}


def key(number: int, wire: int) -> int:
    """The key of a field with that number, written in that way."""
    return number << 3 | wire


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Each field's key and value: an unsigned integer for a varint, else bytes. Raises ValueError."""
    place = 0
    while place < len(message):
        found, place = varint(message, place)
        wire = found & 7
        if wire == VARINT:
            value, place = varint(message, place)
            yield found, value
            continue
        if wire == SIZED:
            size, place = varint(message, place)
        elif wire in _FIXED:
            size = _FIXED[wire]
        else:
            raise ValueError("invalid message: unknown kind of field")
        if place + size > len(message):
            raise ValueError("invalid message: a field is truncated")
        yield found, message[place : place + size]
        place += size


def varint(message: bytes, place: int) -> tuple[int, int]:
    """The unsigned integer of 64 bits that starts at a place, and the place behind it. Raises ValueError."""
    value = 0
    for shift, byte in enumerate(message[place : place + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place + shift + 1
    raise ValueError("invalid message: a number is truncated")


def coded(number: int) -> bytes:
    """An unsigned integer as a varint, in as few bytes as will do."""
    places = range(0, max(number.bit_length(), 1), 7)
    *more, last = (number >> place & 0x7F for place in places)
    return bytes([*(byte | 0x80 for byte in more), last])
