"""Frames of TensorBoard's event files, which are TFRecord files.

A frame is the payload's length (8 bytes, little-endian), a checksum of these bytes (4), the payload,
and a checksum of the payload (4). Checksums are CRC-32C, rotated right by 15 bits, plus a constant
(TensorFlow, ``tensorflow/core/lib/hash/crc32c.h``: a checksum of bytes that hold checksums is weak).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct

from google_crc32c import value as crc32c

LIMIT = 4 * 1024 * 1024
"""Frames of that many bytes and more hold images, audio or text: no one reads them."""

HEADER = 12
FOOTER = 4

_BETWEEN = Struct(f"<I{HEADER}s").unpack_from
"""A payload's checksum, and the header of the next frame."""

_MASK = 0xA282EAD8
_WORD = 0xFFFFFFFF
_MAY_BE_LENGTH = re.compile(rb"(?=(?:[^\0]..|\0[^\0].|\0\0[^\0])\0{5})", re.DOTALL)
"""Lengths below 16 MiB end in five zero bytes. 0 is left out, since holes in files are full of it."""


@dataclass(slots=True)
class Frames:
    """What the bytes of an event file hold.

    ``payloads`` are those of whole frames, ``used`` the bytes dealt with: the next call starts behind
    them. ``skip``: how many of the bytes that follow in the file belong to a frame of ``LIMIT`` bytes
    or more; they need not be read. ``too_long`` counts such frames, ``broken`` damaged places.
    """

    payloads: list[bytes] = field(default_factory=list)
    used: int = 0
    skip: int = 0
    too_long: int = 0
    broken: int = 0


def split(data: bytes) -> Frames:
    """Split off the whole frames at the start of bytes that start with a frame.

    A torn frame waits for its rest. So does a damaged one until something follows it: over NFS, what
    was appended last may read as zeros for a moment. ``LIMIT`` bytes without a right length are given
    up, so anyone who reads that many at a time always gets on.
    """
    frames = Frames()
    while True:
        frames.used = _row(data, frames.used, frames.payloads)
        if frames.used + HEADER > len(data):
            break
        length = _length(data[frames.used : frames.used + HEADER])
        went_on = _search(frames, data) if length is None else _take(frames, data, length)
        if not went_on:
            break
    return frames


def _row(data: bytes, place: int, payloads: list[bytes]) -> int:
    """Add the payloads of the right frames that stand in a row from a place on; returns where it ends.

    Nearly all frames are in such a row. The last of the data is not: no header follows it.
    """
    start = place + HEADER
    length = _length(data[place:start])
    while length is not None and length + HEADER + FOOTER < LIMIT:
        end = start + length
        if end + FOOTER + HEADER > len(data):
            break
        payload = data[start:end]
        checksum, header = _BETWEEN(data, end)
        if checksum != _masked(crc32c(payload)):
            break
        payloads.append(payload)
        start = end + FOOTER + HEADER
        length = _length(header)
    return start - HEADER


def _take(frames: Frames, data: bytes, length: int) -> bool:
    """Go on behind a frame with that length, if all of it is there."""
    start = frames.used + HEADER
    end = start + length
    behind = end + FOOTER
    if behind - frames.used >= LIMIT:
        frames.too_long += 1
        frames.skip = max(0, behind - len(data))
    elif behind <= len(data) and _checksum(payload := data[start:end]) == data[end:behind]:
        frames.payloads.append(payload)
    elif behind < len(data):
        frames.broken += 1
    else:
        return False
    frames.used = min(behind, len(data))
    return True


def _search(frames: Frames, data: bytes) -> bool:
    """Go on behind a damaged length, at the next right one, if there is one or waiting is hopeless."""
    found = _next_length(data, frames.used + 1)
    if found is None:
        if len(data) - frames.used < LIMIT:
            return False
        found = len(data) - HEADER + 1
    frames.used = found
    frames.broken += 1
    return True


def _next_length(data: bytes, start: int) -> int | None:
    """Where the next right length is. Its payload has a checksum of its own: 64 bits must be right."""
    places = (found.start() for found in _MAY_BE_LENGTH.finditer(data, start))
    return next((place for place in places if _length(data[place : place + HEADER]) is not None), None)


@lru_cache(maxsize=1024)
def _length(header: bytes) -> int | None:
    """The payload's length; ``None`` if its checksum is wrong."""
    right = _checksum(header[:8]) == header[8:]
    return int.from_bytes(header[:8], "little") if right else None


def _checksum(data: bytes) -> bytes:
    return _masked(crc32c(data)).to_bytes(4, "little")


def _masked(crc: int) -> int:
    return (crc >> 15 | crc << 17) + _MASK & _WORD
