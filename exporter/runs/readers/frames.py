"""Frames of TensorBoard's event files, which are TFRecord files.

A frame is the payload's length (8 bytes, little-endian), a checksum of these bytes (4), the payload,
and a checksum of the payload (4). Checksums are CRC-32C, rotated right by 15 bits, plus a constant
(TensorFlow, ``tensorflow/core/lib/hash/crc32c.h``: a checksum of bytes that hold checksums is weak).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from google_crc32c import value as crc32c

LIMIT = 4 * 1024 * 1024
"""Frames of that many bytes and more hold images, audio or text: nobody reads them."""

HEADER = 12
FOOTER = 4

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
    up, so whoever reads that many at a time always gets on.
    """
    frames = Frames()
    while frames.used + HEADER <= len(data):
        length = _length(data[frames.used : frames.used + HEADER])
        went_on = _search(frames, data) if length is None else _take(frames, data, length)
        if not went_on:
            break
    return frames


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
    crc: int = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK & _WORD).to_bytes(4, "little")
