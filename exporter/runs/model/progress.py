"""Progress of a run: the steps of each part of its trainer, those that count, those planned, and its marks.

Trainers log a step in several records, log steps again after a resume, and repeat unchanged
numbers. This module decides which of a record's signals are new measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

from exporter.runs.signals.record import Record, number
from exporter.runs.stats.catalogue import ZERO_MEANS_NOT_MEASURED

AHEAD = 2
"""Steps by which another part must have logged more to be believed instead: an evaluation may come first."""
IsMeasured = Callable[[str], bool]


class SignalSources:
    """The part that each signal is taken from: two parts that log it would count each step twice."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def own(
        self, found: Mapping[str, float], stream: Stream, progress: Progress, is_measured: IsMeasured
    ) -> dict[str, float]:
        """The signals of this part, of those found; ``is_measured``: it was ever seen other than 0."""
        if not self._names:  # until now there was one part, which logged all that was counted
            for other in progress.streams.values():
                if other is not stream:
                    self._names.update(dict.fromkeys(other.counted, other.name))
        for signal, value in found.items():
            owner = self._names.setdefault(signal, stream.name)
            if owner != stream.name:
                known = progress.streams.get(owner)
                leads = known is not None and stream.steps >= known.steps + AHEAD
                if leads or (signal in ZERO_MEANS_NOT_MEASURED and value != 0 and not is_measured(signal)):
                    self._names[signal] = stream.name
        return {signal: value for signal, value in found.items() if self._names[signal] == stream.name}

    def snapshot(self) -> dict[str, str]:
        """What a restart must not lose, as plain JSON values."""
        return self._names

    def restore(self, saved: dict[str, str]) -> None:
        """Start from what ``snapshot`` returned."""
        self._names = dict(saved)


STEP_KEYS = frozenset({"training/global_step", "training/epoch", "global_step", "epoch", "step", "timestamp"})
FAR = 100  # times the usual distance: the number of a step that is so far ahead is a slip of the log
MOST_REPEATS = 64
"""Trainers that measure every 10th or 50th step may write each measurement in every step until the next.
Numbers that stay the same for longer are what the trainer measures: the run is stuck, and must be judged."""


class Kind(Enum):
    """The role of a record in the run."""

    NEW = auto()
    RESUME = auto()
    FROM_SCRATCH = auto()
    REPEAT = auto()


@dataclass(slots=True)
class Stream:
    """The last record of one part of the trainer, how many steps that logged, how often it was repeated.

    ``before`` is the step before the last one.
    """

    name: str
    step: int
    before: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    steps: int = 1
    repeats: int = 0


@dataclass(slots=True)
class Progress:
    """Steps of a run over all its attempts.

    ``ignore_to``: logged before the resume; ``counted``: the highest step that was counted.
    ``since``: the first step that was counted since the run is measured, from its first record or its
    last mark; ``seen`` how many were.
    ``emptied``: the log was emptied since the last record, so that the next one is another attempt's.
    """

    first: int | None = None
    highest: int = -1
    step: int = -1
    ignore_to: int = -1
    counted: int = -1
    since: int | None = None
    seen: int = 0
    emptied: bool = False
    streams: dict[str, Stream] = field(default_factory=dict)

    def kind(self, record: Record) -> Kind:
        """What this record is; call before ``take``."""
        stream = self.streams.get(record.stream)
        if stream is None:
            return Kind.NEW
        if self._misnumbered(stream, record.step):
            self.highest = self.step = self.counted = stream.step = stream.before or 0
        if record.step < stream.step or (self.emptied and record.step == stream.step):
            first = self.first if self.first is not None else record.step
            return Kind.FROM_SCRATCH if record.step <= first else Kind.RESUME
        stream.repeats = stream.repeats + 1 if _unchanged(record.values, stream.values) else 0
        return Kind.REPEAT if 0 < stream.repeats <= MOST_REPEATS else Kind.NEW

    def _misnumbered(self, stream: Stream, step: int) -> bool:
        """Whether the last record had a wrong number: far ahead, and this one goes on where it left."""
        if stream.before is None or not stream.before < step < stream.step == self.highest:
            return False
        return stream.step - stream.before > FAR * (step - stream.before)

    def resume(self) -> None:
        """The step counter went back: what was logged before is not counted again."""
        self.ignore_to, self.step = self.highest, -1
        self.streams.clear()

    def take(self, record: Record) -> Stream:
        """Move on to the record; returns its stream, whose ``counted`` holds what the step had."""
        if self.first is None:
            self.first = record.step
        self.emptied = False
        self.highest = max(self.highest, record.step)
        self.step = max(self.step, record.step)
        stream = self.streams.get(record.stream)
        if stream is None or record.step != stream.step:
            steps, repeats = (stream.steps + 1, stream.repeats) if stream else (1, 0)
            before = stream.step if stream else None
            stream = Stream(record.stream, record.step, before, steps=steps, repeats=repeats)
            self.streams[record.stream] = stream
        stream.values = record.values
        return stream

    def count(self, record: Record) -> bool:
        """Whether it is the first record of its step, whichever part of the trainer it is from."""
        new = record.step > self.counted
        self.counted = max(self.counted, record.step)
        if new:
            self.since = record.step if self.since is None else self.since
            self.seen += 1
        return new

    def snapshot(self) -> dict[str, Any]:
        """What a restart must not lose, as plain JSON values."""
        streams = {name: [stream.step, sorted(stream.counted)] for name, stream in self.streams.items()}
        return {name: getattr(self, name) for name in _KEPT} | {"streams": streams}

    def restore(self, saved: dict[str, Any]) -> None:
        """Start from what ``snapshot`` returned."""
        for name in _KEPT:
            setattr(self, name, saved[name])
        self.emptied = True
        streams = saved["streams"].items()
        self.streams = {name: Stream(name, step, counted=set(counted)) for name, (step, counted) in streams}


_KEPT = ("first", "highest", "step", "ignore_to", "counted", "since", "seen")


def _unchanged(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether all numbers but step and time are those of the last record, and there are two or more."""
    for key, value in new.items():
        if old.get(key) != value and key not in STEP_KEYS and number(value) is not None:
            return False
    numbers = _numbers(new)
    return len(numbers) >= 2 and numbers == _numbers(old)


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a record as they were written: NaN equals NaN there."""
    return {key: value for key, value in values.items() if key not in STEP_KEYS and number(value) is not None}


MOST_MOVES = 2
"""How often a total may change within an attempt: a bar or two may be taken for the training's before that is
drawn. What changes more often counts something that grows."""

_RESTORED = "restored"


@dataclass(slots=True)
class _Said:
    """A total as the log says it under one key: at which step last, and how often it moved with the step."""

    steps: int
    at: int = -1
    moves: int = 0


class PlannedSteps:
    """How many steps the trainer makes: the lowest total that steps neither exceed nor move."""

    def __init__(self) -> None:
        self._said: dict[str, _Said] = {}

    def say(self, steps: int, key: str, step: int) -> None:
        """Take a total that the log says under a key, when the run is at a step."""
        self._said.pop(_RESTORED, None)
        said = self._said.setdefault(key, _Said(steps))
        if step > said.at and said.moves <= MOST_MOVES:
            said.moves = said.moves + 1 if steps != said.steps else 0
        said.steps, said.at = steps, step

    def begin(self) -> None:
        """Begin another attempt, which may have another total."""
        for said in self._said.values():
            said.at = -1
            said.moves = said.moves if said.moves > MOST_MOVES else 0

    def total(self, step: int) -> int | None:
        """The total that holds at a step, if there is one."""
        believed = (said.steps for said in self._said.values() if said.moves <= MOST_MOVES)
        return min((steps for steps in believed if steps >= step), default=None)

    def restore(self, total: int | None) -> None:
        """Start from what ``total`` returned; it holds until the log says another."""
        self._said = {} if total is None else {_RESTORED: _Said(total)}


MOST_MARKS = 5
"""Marks of a run that are remembered. Only the last one decides; the others are there to be seen."""
Place = tuple[int, int]  # how often the run had been started again, and the last step since


class Mark(NamedTuple):
    """An operator's mark: after an intended change, levels are re-baselined from the next step on.

    It lies behind a step of an attempt, and was made at a time (seconds since the epoch), with a note.
    """

    attempt: int
    step: int
    time: float
    note: str


class Marks:
    """The last marks of one run, oldest first; notes are unique, since they distinguish marks.

    A mark is known by its place in the run, not in the file: a log that is read again from its beginning
    passes the same places, and one that was emptied never passes them again.
    """

    def __init__(self, saved: Iterable[Iterable[Any]] = ()) -> None:
        self.all = [Mark(*mark) for mark in saved]

    def add(self, mark: Mark) -> None:
        """Remember a mark; one with the same note gives way."""
        others = [other for other in self.all if other.note != mark.note]
        self.all = [*others, mark][-MOST_MARKS:]

    def passed(self, before: Place, after: Place) -> bool:
        """Whether the way from one place of the run to the next leads past a mark."""
        return any(before <= (mark.attempt, mark.step) < after for mark in self.all)

    def forget(self, before: int) -> None:
        """The run began from scratch with this attempt: marks of earlier ones mean nothing any more."""
        self.all = [mark for mark in self.all if mark.attempt >= before]

    def snapshot(self) -> list[list[Any]]:
        """All marks, as plain JSON values."""
        return [list(mark) for mark in self.all]
