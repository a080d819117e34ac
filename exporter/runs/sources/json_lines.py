"""What formats with one JSON object a line have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from exporter.runs.record import Event, Record


class JsonLines(ABC):
    """A format in which every line is a record; ``record`` reads one, or says ``None``."""

    @staticmethod
    @abstractmethod
    def record(line: bytes) -> Record | None:
        """The record that the line holds."""

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        return line.startswith(b"{") and cls.record(line) is not None

    def read(self, line: bytes) -> Iterator[Event]:
        record = self.record(line)
        if record is None:
            raise ValueError("no record")
        yield record
