"""What formats with one JSON object a line have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import orjson

from exporter.runs.signals.record import Event, Record
from exporter.runs.sources.whole import Whole


class JsonLines(Whole, ABC):
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


def parse(text: bytes) -> Any:
    """Read JSON as Python writes it, or say ``None``."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _parse_leniently(text)


def _parse_leniently(text: bytes) -> Any:
    """Python's ``json.dumps`` writes bare ``NaN``, which strict parsers refuse: ``null`` says the same."""
    if b"NaN" not in text and b"Infinity" not in text:
        return None
    try:
        return orjson.loads(json.dumps(json.loads(text, parse_constant=lambda _: None)))
    except (ValueError, RecursionError):
        return None
