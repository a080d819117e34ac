"""Where each part of a trainer stands: which step it logged last, and what of it was counted.

Trainers log a step in several records, log steps again after a resume, and repeat unchanged
numbers. This module decides which of a record's signals are new measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from exporter.runs.numbers import number
from exporter.runs.record import Record

STEP_KEYS = frozenset({"training/global_step", "training/epoch", "global_step", "epoch", "step", "timestamp"})


class Kind(Enum):
    """What a record is to the run."""

    NEW = auto()
    RESUME = auto()
    FROM_SCRATCH = auto()
    REPEAT = auto()


@dataclass(slots=True)
class Stream:
    """The last record of one part of the trainer."""

    step: int
    values: Mapping[str, Any] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Progress:
    """Steps of a run over all its attempts; ``ignore_to``: logged before the resume."""

    first: int | None = None
    highest: int = -1
    step: int = -1
    ignore_to: int = -1
    streams: dict[str, Stream] = field(default_factory=dict)

    def kind(self, record: Record) -> Kind:
        """What this record is; call before ``take``."""
        stream = self.streams.get(record.stream)
        if stream is None:
            return Kind.NEW
        if record.step < stream.step:
            first = self.first if self.first is not None else record.step
            return Kind.FROM_SCRATCH if record.step <= first else Kind.RESUME
        return Kind.REPEAT if _unchanged(record.values, stream.values) else Kind.NEW

    def resume(self) -> None:
        """The step counter went back: what was logged before is not counted again."""
        self.ignore_to, self.step = self.highest, -1
        self.streams.clear()

    def take(self, record: Record) -> Stream:
        """Move on to the record; returns its stream, whose ``counted`` holds what the step had."""
        if self.first is None:
            self.first = record.step
        self.highest = max(self.highest, record.step)
        self.step = max(self.step, record.step)
        stream = self.streams.get(record.stream)
        if stream is None or record.step != stream.step:
            stream = self.streams[record.stream] = Stream(record.step)
        stream.values = record.values
        return stream

    def kept(self) -> dict[str, Any]:
        """What a restart must not lose, as plain JSON values."""
        steps = {name: stream.step for name, stream in self.streams.items()}
        return {"first": self.first, "highest": self.highest, "step": self.step, "streams": steps}

    def restore(self, kept: dict[str, Any]) -> None:
        """Start from what ``kept`` returned."""
        self.first, self.highest, self.step = kept["first"], kept["highest"], kept["step"]
        self.streams = {name: Stream(step) for name, step in kept["streams"].items()}


def _unchanged(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Are all numbers but step and time those of the last record, and are there two or more?"""
    if len(new) != len(old):
        return False
    for key, value in new.items():
        if key not in STEP_KEYS and (key not in old or old[key] != value):
            return False
    return sum(number(value) is not None for key, value in new.items() if key not in STEP_KEYS) >= 2
