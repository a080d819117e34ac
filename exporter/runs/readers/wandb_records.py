"""W&B's transaction log cut into records.

After seven bytes of its own it is a log as LevelDB writes it: blocks of 32 KiB, with chunks in them.
A chunk has a checksum (CRC-32 of kind and payload), the payload's length and its kind: a whole record,
or the first, a middle or the last part of one. No chunk begins in the last six bytes of a block.

Source: LevelDB's ``doc/log_format.md``; W&B 0.31 (``core/internal/transactionlog``).
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from exporter.runs.readers.framing import Pieces

START = b":W&B"
FILE_HEADER = 7
BLOCK = 32 * 1024
LIMIT = 4 * 1024 * 1024
"""Records of that many bytes and more hold tables and texts: nobody reads them."""

_CHUNK = Struct("<IHB")
_WHOLE, _FIRST, _LAST = 1, 2, 4


class WandbRecords:
    """The records of one file. A damaged block is left out as soon as another follows it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._offset = 0
        self._begun: bytearray | None = None

    def split(self, data: bytes, *, full: bool) -> Pieces:  # noqa: ARG002  (chunks tell their length)
        pieces = Pieces(used=0 if self._offset else FILE_HEADER)
        if pieces.used > len(data):
            return Pieces()
        while pieces.used < len(data):
            left = BLOCK - (self._offset + pieces.used) % BLOCK
            end = self._chunk(data, pieces, left)
            if end is None:  # a block's end, damage, or a chunk that is not all there yet
                end = pieces.used + left
                if end > len(data) or (end == len(data) and left >= _CHUNK.size):
                    break
                if left >= _CHUNK.size:
                    pieces.broken += 1
                    self._begun = None
            pieces.used = end
        self._offset += pieces.used
        return pieces

    def rest(self, _data: bytes) -> list[bytes]:
        return []

    def _chunk(self, data: bytes, pieces: Pieces, left: int) -> int | None:
        """Take the chunk that begins here; returns where it ends, or ``None`` if there is none."""
        start = pieces.used + _CHUNK.size
        if left < _CHUNK.size or start > len(data):
            return None
        checksum, length, kind = _CHUNK.unpack_from(data, pieces.used)
        payload = data[start : start + length]
        if length > left - _CHUNK.size or len(payload) < length or not kind:
            return None
        if crc32(payload, crc32(bytes([kind]))) != checksum:
            return None
        self._take(kind, payload, pieces)
        return int(start + length)

    def _take(self, kind: int, payload: bytes, pieces: Pieces) -> None:
        """Put the parts of a record together; parts whose first one is lost are left out."""
        if kind in (_WHOLE, _FIRST):
            self._begun = bytearray()
        if self._begun is None:
            return
        self._begun += payload
        if len(self._begun) >= LIMIT:
            self._begun = None
            pieces.too_long += 1
        elif kind in (_WHOLE, _LAST):
            pieces.lines.append(bytes(self._begun))
            self._begun = None
