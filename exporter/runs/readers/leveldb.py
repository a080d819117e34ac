"""Records of a log in LevelDB's format, as trackers keep them behind a header of their own.

Blocks of 32 KiB hold chunks: a CRC-32 of type and data (4 bytes, little-endian), the length of the data (2),
the type (1), the data. A record is one chunk (``FULL``), or several in a row that end with ``LAST``; fewer
than seven bytes at the end of a block are padding. Source: LevelDB, ``doc/log_format.md``; SwanLab 0.10.3,
``sdk/internal/core_python/store``, whose checksum is zlib's.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from exporter.runs.readers.block import Pieces

BLOCK = 32 * 1024
FILE_HEADER = 7
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
        place = 0 if self._at else FILE_HEADER
        while True:
            left = BLOCK - (self._at + place) % BLOCK  # bytes to the end of the block
            if left < _CHUNK.size:  # padding
                place, left = place + left, BLOCK
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
            pieces.too_long, pieces.used = 1, len(data) - (self._at + len(data)) % BLOCK
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
