"""Standard output and error that lose what cannot be written, as on a full disk, instead of failing."""

from __future__ import annotations

import io
import os
import sys


class _Lossy(io.RawIOBase):
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, text: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            return os.write(self._descriptor, text)
        except OSError:
            return len(text)


def lose_what_cannot_be_written() -> None:
    """Have no print end this process: natively its log is a file, and its disk may be full."""
    for stream in ("stdout", "stderr"):
        old = getattr(sys, stream)
        try:
            raw = _Lossy(old.fileno())
        except (AttributeError, OSError):  # there is none, or a test took its place
            continue
        setattr(
            sys,
            stream,
            io.TextIOWrapper(
                io.BufferedWriter(raw), old.encoding, errors="backslashreplace", line_buffering=True
            ),
        )
