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
from functools import lru_cache
from struct import Struct
from zlib import crc32

from google_crc32c import value as crc32c

from exporter.runs.readers.follow import Block

LIMIT = 4 * 1024 * 1024  # Frames of that many bytes and more hold images, audio or text: no one reads them
HEADER, FOOTER = 12, 4
_WORD, _LENGTH = Struct("<I"), Struct("<QI")
_MAY_BE_LENGTH = re.compile(rb"(?=(?:[^\0]..|\0[^\0].|\0\0[^\0])\0{5})", re.DOTALL)
"""Lengths below 16 MiB end in five zero bytes. 0 is left out, since holes in files are full of it."""


def split(data: bytes, block: Block | None = None) -> Block:
    """Cut the payloads of whole frames off bytes that start with a frame; ``broken`` counts damaged places.

    A torn frame waits for its rest. So does a damaged one until something follows it: over NFS, what
    was appended last may read as zeros for a moment. ``LIMIT`` bytes without a right length are given
    up, so anyone who reads that many at a time always gets on. What is skipped may not be written yet: never
    beyond the end, where a shorter file would seem to have taken this one's place.
    """
    block = block or Block()
    lines, size, place, checksum_at = block.lines, len(data), min(block.skip, len(data)), _WORD.unpack_from
    block.skip -= place
    while (start := place + HEADER) <= size:
        length = _length(data[place:start])
        if length is None:  # damaged: go on at the next right length, unless it may still come
            places = (found.start() for found in _MAY_BE_LENGTH.finditer(data, place + 1))
            # its payload has a checksum of its own: 64 bits must be right
            right = next((at for at in places if _length(data[at : at + HEADER]) is not None), None)
            if right is None and size - place < LIMIT:
                break
            place = size - HEADER + 1 if right is None else right
            block.broken += 1
            continue
        end = start + length
        behind = end + FOOTER
        if behind - place >= LIMIT:
            block.too_long += 1
            block.skip = max(0, behind - size)
            behind = min(behind, size)
        elif behind > size:
            break
        elif checksum_at(data, end)[0] == _checksum(payload := data[start:end]):
            lines.append(payload)
        elif behind == size:
            break
        else:
            block.broken += 1
        place = behind
    block.used = place
    return block


def frame(payload: bytes) -> bytes:
    """Return the frame of a payload, for a writer of event files."""
    length = len(payload).to_bytes(8, "little")
    return b"".join((length, _WORD.pack(_checksum(length)), payload, _WORD.pack(_checksum(payload))))


@lru_cache(maxsize=1024)
def _length(header: bytes) -> int | None:
    """The payload's length; ``None`` if its checksum is wrong."""
    if len(header) < HEADER:
        return None
    length, checksum = _LENGTH.unpack(header)
    return int(length) if checksum == _checksum(header[:8]) else None


def _checksum(data: bytes) -> int:
    crc: int = crc32c(data)
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


LEVELDB_BLOCK = 32 * 1024
LEVELDB_HEADER = 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
_CHUNK = Struct("<IHB")
_TYPES = {kind: crc32(bytes([kind])) for kind in (FULL, FIRST, MIDDLE, LAST)}


def records(data: bytes, block: Block) -> Block:
    """Cut whole records. A damaged chunk takes the rest of its block with it, once another block follows."""
    parts: list[bytes] = []
    place = 0 if block.start else LEVELDB_HEADER
    while True:
        left = LEVELDB_BLOCK - (block.start + place) % LEVELDB_BLOCK  # bytes to the end of the block
        if left < _CHUNK.size:  # padding
            place, left = place + left, LEVELDB_BLOCK
        begin = place + _CHUNK.size
        checksum, length, kind = _CHUNK.unpack_from(data, place) if begin <= len(data) else (0, 0, 0)
        chunk = data[begin : begin + length]
        if kind not in _TYPES or len(chunk) < length or crc32(chunk, _TYPES[kind]) != checksum:
            place += left
            if place >= len(data):  # the rest of the chunk may still come
                break
            block.broken += 1
            block.used = place
            parts.clear()
            continue
        place = begin + length
        if kind in (FULL, FIRST):
            parts.clear()
        elif not parts:  # the rest of what was left out
            block.used = place
            continue
        parts.append(chunk)
        if kind in (FULL, LAST):
            block.lines.append(b"".join(parts))
            parts.clear()
            block.used = place
    if block.more and not block.used:
        block.too_long, block.used = 1, len(data) - (block.start + len(data)) % LEVELDB_BLOCK
    return block
