"""Sources: one file for each format that trainers write. Told apart by content, not by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from exporter.runs.record import Event
from exporter.runs.sources.scoped_jsonl import ScopedJsonl
from exporter.runs.sources.verl_console import VerlConsole
from exporter.runs.sources.verl_jsonl import VerlJsonl


class Source(Protocol):
    """Reads one format. ``framework`` names the column of the signal table that its keys are in."""

    name: str
    framework: str

    @staticmethod
    def recognises(line: bytes) -> bool:
        """Is this line a record of the format?"""

    def read(self, line: bytes) -> Iterator[Event]:
        """What the line says; nothing if it is about something else.

        Raises:
            ValueError: the line should be a record and is none.
        """


SOURCES: tuple[type[Source], ...] = (VerlJsonl, ScopedJsonl, VerlConsole)


def recognise(line: bytes) -> Source | None:
    """The source whose record this line is, if any."""
    return next((source() for source in SOURCES if source.recognises(line)), None)
