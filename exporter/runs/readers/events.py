"""Event files cut into events."""

from __future__ import annotations

from exporter.runs.readers import frames
from exporter.runs.readers.framing import Pieces


class EventFrames:
    """TensorBoard's frames; nothing of a torn one is read before it is whole."""

    def __init__(self) -> None:
        self._skip = 0

    def split(self, data: bytes, *, full: bool) -> Pieces:  # noqa: ARG002  (frames tell their length)
        # What is skipped may not be written yet: never beyond the end, where a shorter file would seem
        # to have taken this one's place.
        jump = min(self._skip, len(data))
        found = frames.split(data[jump:])
        self._skip += found.skip - jump
        return Pieces(found.payloads, jump + found.used, found.too_long, found.broken)

    def rest(self, _data: bytes) -> list[bytes]:
        return []

    def reset(self) -> None:
        self._skip = 0
