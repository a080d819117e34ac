"""What every format offers, and JSON as trainers write it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import orjson

from exporter.runs.signals import NONE_MAPPED, Mapped
from exporter.runs.signals.record import Event


class Source(ABC):
    """Parses one format, for one log; ``framework`` is empty where the keys must show the trainer.

    ``mapped``: the keys that a user maps to signals.
    """

    name: str
    framework: str = ""

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        self._mapped = mapped

    def again(self) -> Source:
        """Return a parser of another log of this format."""
        return type(self)(self._mapped)

    @abstractmethod
    def recognises(self, line: bytes) -> bool:
        """Whether this line is a record of the format."""

    @abstractmethod
    def parse(self, line: bytes) -> Iterator[Event]:
        """What the line says; nothing if it is about something else. Raises ValueError."""

    def flush(self) -> Iterator[Event]:
        """What is known of a record whose end has not come yet: nothing more is there for now."""
        return iter(())


def load_json(text: bytes) -> Any:
    """A JSON value as Python writes it, or ``None``."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    # Python's json.dumps writes bare NaN, which strict parsers refuse: null says the same
    if b"NaN" not in text and b"Infinity" not in text:
        return None
    try:
        return orjson.loads(json.dumps(json.loads(text, parse_constant=lambda _: None)))
    except (ValueError, RecursionError):
        return None
