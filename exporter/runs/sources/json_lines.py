"""One JSON object a line: of verl, of trainers whose parts log lines of their own, of home-made loops."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import orjson

from exporter.runs.signals.record import Event, Record, is_step, seconds
from exporter.runs.sources.base import Source, load_json
from exporter.runs.sources.flat import FlatRecords, flattened, is_record, is_sample

ABOUT_THE_RECORD = frozenset({"timestamp", "scope", "step"})
DEEPEST = 16
"""Scopes within scopes."""


class JsonLines(Source):
    """A format in which every line is a record."""

    @staticmethod
    @abstractmethod
    def record(line: bytes) -> Record | None:
        """The record that the line holds, if any."""

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        return line.startswith(b"{") and cls.record(line) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        record = self.record(line)
        if record is None:
            raise ValueError("no record")
        yield record


class VerlJsonl(JsonLines):
    """verl's ``file`` logger, 0.7 to 0.9: ``{"step":12,"data":{"actor/entropy":0.41,...}}``.

    NaN and Inf stand as ``null``; there is no time and no end mark.
    """

    name = "verl_jsonl"
    framework = "verl"

    @staticmethod
    def record(line: bytes) -> Record | None:
        try:
            found: Any = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None
        match found:
            case {"step": step, "data": dict(values)} if is_step(step):
                return Record(step, values)
        return None


class ScopedJsonl(JsonLines):
    """Each part of the trainer logs its line: ``{"scope":"rollout","step":120,"reward_mean":0.5}``.

    A scope within others is written as text (``trainer/actor``), as a list of names, or as an
    object of objects. Keys are flat, or grouped once.
    """

    name = "scoped_jsonl"
    framework = "scoped"

    @staticmethod
    def record(line: bytes) -> Record | None:
        match load_json(line):
            case {"scope": scope, "step": step} as found if is_step(step):
                names = list(_scopes(scope))
                if names:
                    values = {key: value for key, value in found.items() if key not in ABOUT_THE_RECORD}
                    return Record(step, flattened(values), seconds(found.get("timestamp")), "/".join(names))
        return None


def _scopes(scope: Any, depth: int = 0) -> Iterator[str]:
    """The names of a scope, outermost first."""
    match scope:
        case str(name):
            yield name
        case list(names) if depth < DEEPEST:
            for name in names:
                yield from _scopes(name, depth + 1)
        case dict(inner) if depth < DEEPEST:
            for name, below in inner.items():
                yield name
                yield from _scopes(below, depth + 1)


class FlatJsonl(Source):
    """Every line holds what was logged at a step, under keys that show the framework.

    ``{"step":12,"reward/mean":0.5,...}``, of home-made loops, Tinker, SkyRL and ms-swift.
    """

    name = "flat_jsonl"

    def __init__(self) -> None:
        self._records = FlatRecords()

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        return line.startswith(b"{") and is_record(load_json(line))

    def parse(self, line: bytes) -> Iterator[Event]:
        if not line.strip():
            return
        match load_json(line):
            case dict(logged):
                if not is_sample(logged):
                    yield from self._records.events(logged)
            case _:
                raise ValueError("no record")
