"""The records of binary logs: TensorBoard's event files, which are TFRecord files, and LevelDB's log format.

A frame of TFRecord is the payload's length (8 bytes, little-endian), a checksum of these bytes (4), the
payload, and a checksum of the payload (4). Checksums are CRC-32C, rotated right by 15 bits, plus a constant
(TensorFlow, ``tensorflow/core/lib/hash/crc32c.h``: a checksum of bytes that hold checksums is weak).

Trackers keep logs in LevelDB's format behind a header of their own. Blocks of 32 KiB hold chunks: a CRC-32 of
type and data (4 bytes, little-endian), the length of the data (2), the type (1), the data. A record is one
chunk (``FULL``), or several in a row that end with ``LAST``; fewer than seven bytes at the end of a block are
padding. Source: LevelDB, ``doc/log_format.md``; SwanLab 0.10.3, ``sdk/internal/core_python/store``, whose
checksum is zlib's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from zlib import crc32

from google_crc32c import value as crc32c

from exporter.runs.readers.follow import Pieces

LIMIT = 4 * 1024 * 1024  # Frames of that many bytes and more hold images, audio or text: no one reads them
HEADER = 12
FOOTER = 4
_BETWEEN = Struct(f"<I{HEADER}s").unpack_from  # A payload's checksum, and the header of the next frame
_MASK = 0xA282EAD8
_WORD = 0xFFFFFFFF
_MAY_BE_LENGTH = re.compile(rb"(?=(?:[^\0]..|\0[^\0].|\0\0[^\0])\0{5})", re.DOTALL)
"""Lengths below 16 MiB end in five zero bytes. 0 is left out, since holes in files are full of it."""


@dataclass(slots=True)
class Frames(Pieces):
    """Payloads of whole frames; ``skip`` bytes of one too long follow. ``broken`` counts damaged places."""

    skip: int = 0


class EventFrames:
    """TensorBoard's frames as a framing; nothing of a torn one is read before it is whole."""

    def __init__(self) -> None:
        self._skip = 0

    def split(self, data: bytes, *, full: bool) -> Pieces:  # noqa: ARG002  (frames have their length)
        # What is skipped may not be written yet: never beyond the end, where a shorter file would seem
        # to have taken this one's place.
        jump = min(self._skip, len(data))
        found = split(data[jump:])
        self._skip += found.skip - jump
        found.used += jump
        return found

    def unfinished(self, _data: bytes) -> list[bytes]:
        return []

    def reset(self) -> None:
        self._skip = 0


def split(data: bytes) -> Frames:
    """Split off the whole frames at the start of bytes that start with a frame.

    A torn frame waits for its rest. So does a damaged one until something follows it: over NFS, what
    was appended last may read as zeros for a moment. ``LIMIT`` bytes without a right length are given
    up, so anyone who reads that many at a time always gets on.
    """
    frames = Frames()
    while True:
        frames.used = _row(data, frames.used, frames.lines)
        start = frames.used + HEADER
        if start > len(data):
            return frames
        length = _length(data[frames.used : start])
        if length is None:  # damaged: go on at the next right length, unless it may still come
            found = _next_length(data, frames.used + 1)
            if found is None:
                if len(data) - frames.used < LIMIT:
                    return frames
                found = len(data) - HEADER + 1
            frames.used = found
            frames.broken += 1
            continue
        end = start + length
        behind = end + FOOTER
        if behind - frames.used >= LIMIT:
            frames.too_long += 1
            frames.skip = max(0, behind - len(data))
        elif behind <= len(data) and _checksum(payload := data[start:end]) == data[end:behind]:
            frames.lines.append(payload)
        elif behind < len(data):
            frames.broken += 1
        else:
            return frames
        frames.used = min(behind, len(data))


def frame(payload: bytes) -> bytes:
    """Return the frame of a payload, for a writer of event files."""
    length = len(payload).to_bytes(8, "little")
    return b"".join((length, _checksum(length), payload, _checksum(payload)))


def _row(data: bytes, place: int, payloads: list[bytes]) -> int:
    """Add the payloads of right frames in a row from a place on; returns its end.

    No header follows the last.
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


LEVELDB_BLOCK = 32 * 1024
LEVELDB_HEADER = 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
_CHUNK = Struct("<IHB")
_TYPES = {kind: crc32(bytes([kind])) for kind in (FULL, FIRST, MIDDLE, LAST)}


class LevelDbRecords:
    """Whole records. A damaged chunk takes the rest of its block with it, once another block follows."""

    def __init__(self) -> None:
        self._at = 0

    def split(self, data: bytes, *, full: bool) -> Pieces:
        pieces = Pieces()
        parts: list[bytes] = []
        place = 0 if self._at else LEVELDB_HEADER
        while True:
            left = LEVELDB_BLOCK - (self._at + place) % LEVELDB_BLOCK  # bytes to the end of the block
            if left < _CHUNK.size:  # padding
                place, left = place + left, LEVELDB_BLOCK
            found = self._chunk(data, place)
            if found is None:
                behind = place + left
                if behind >= len(data):  # the rest of the chunk may still come
                    break
                pieces.broken += 1
                place = pieces.used = behind
                parts.clear()
                continue
            kind, chunk = found
            place += _CHUNK.size + len(chunk)
            if kind in (FULL, FIRST):
                parts.clear()
            elif not parts:  # the rest of what was left out
                pieces.used = place
                continue
            parts.append(chunk)
            if kind in (FULL, LAST):
                pieces.lines.append(b"".join(parts))
                parts.clear()
                pieces.used = place
        if full and not pieces.used:
            pieces.too_long, pieces.used = 1, len(data) - (self._at + len(data)) % LEVELDB_BLOCK
        self._at += pieces.used
        return pieces

    @staticmethod
    def _chunk(data: bytes, place: int) -> tuple[int, bytes] | None:
        """Type and data of the chunk at a place, if all of it is there and its checksum is right."""
        if place + _CHUNK.size > len(data):
            return None
        checksum, length, kind = _CHUNK.unpack_from(data, place)
        chunk = data[place + _CHUNK.size : place + _CHUNK.size + length]
        right = kind in _TYPES and len(chunk) == length and crc32(chunk, _TYPES[kind]) == checksum
        return (kind, chunk) if right else None

    def unfinished(self, _data: bytes) -> list[bytes]:
        return []

    def reset(self) -> None:
        self._at = 0
