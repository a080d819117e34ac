"""Flat dictionaries of numbers, as home-made loops and transformers log them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from exporter.runs.signals import Mapped, measurements
from exporter.runs.signals.key import normal
from exporter.runs.signals.record import (
    AXES,
    PROGRESS,
    WANDB_STEPS,
    Ended,
    Event,
    Record,
    TotalSteps,
    number,
    sensible_seconds,
    step,
    step_key,
    time_key,
)


class MixedDigits:
    """Corrects steps whose digits several writers mixed: 65 read as 656, between 64 and 66.

    Logs are made of other logs, by patterns that look for a step and its numbers. A record waits for the
    next one where the steps came at equal distances so far, and its step begins with the digits of the
    one that should come.
    """

    def __init__(self) -> None:
        self._last = self._before = -1
        self._waiting: Record | None = None

    def records(self, record: Record) -> Iterator[Record]:
        """The records that can be passed on with this one."""
        expected = 2 * self._last - self._before
        if waiting := self._waiting:
            self._waiting = None
            if self._last < record.step < waiting.step:
                waiting = replace(waiting, step=expected)
            yield self._passed(waiting)
        elif self._before >= 0 and expected < record.step and str(record.step).startswith(str(expected)):
            self._waiting = record
            return
        yield self._passed(record)

    def _passed(self, record: Record) -> Record:
        if record.step != self._last:
            self._before, self._last = self._last, record.step
        return record


_TOTALS = frozenset({"total_steps", "max_steps"})
_DONE = "progress/done_frac"  # Tinker's: the share of the training that is done
_NOT_MEASURED = frozenset({PROGRESS, "percentage", *_TOTALS})  # numbers that say how far the training is
_NAMELESS = {"mean": "reward_mean", "min": "reward_min", "max": "reward_max", "std": "reward_std"}
_BESIDE_NAMELESS = AXES | {"epoch"}
_LARGEST_SCORE = 100.0

_TEXTS = frozenset(
    (
        *("input", "output", "prompt", "response", "completion", "generation", "text", "messages"),
        *("question", "answer", "solution", "gts"),
    )
)
"""Keys of samples: their scores are each a sample's own."""

_LONGEST_TEXT = 200
_MOST_KEYS = 5000


def flattened(logged: Mapping[str, Any]) -> Mapping[str, Any]:
    """``{"reward": {"mean": 0.5}}`` is ``{"reward/mean": 0.5}``."""
    if dict not in map(type, logged.values()):
        return logged
    flat: dict[str, Any] = {}
    for key, value in logged.items():
        inner = {f"{key}/{name}": below for name, below in value.items()} if type(value) is dict else {}
        flat.update(inner or {key: value})
    return flat


def is_record(logged: Any, mapped: Mapped) -> bool:
    """Whether these are measurements: one with a step, or two."""
    if not isinstance(logged, dict) or len(logged) > _MOST_KEYS or is_sample(logged):
        return False
    values = flattened(logged)
    if _is_nameless(values):
        scores = [number(values[key]) for key in ("min", "mean", "max")]
        return step_key(values) is not None and all(abs(x or 0.0) <= _LARGEST_SCORE for x in scores)
    numeric = _numeric(values)
    has_step = PROGRESS in values or step_key(numeric) is not None
    return measurements(numeric, mapped) >= (1 if has_step else 2)


def _numeric(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key for key, value in values.items() if number(value) is not None)


def _is_nameless(values: Mapping[str, Any]) -> bool:
    """Whether these are statistics of something nameless: in a loop of RL the responses' score."""
    if "mean" not in values or not {"min", "max"} <= values.keys():
        return False
    return all(key in _NAMELESS or normal(key) in _BESIDE_NAMELESS for key in values)


def is_sample(logged: Mapping[str, Any]) -> bool:
    """Whether it is a prompt with its answer, or other text."""
    return any(
        (type(value) is str and len(value) > _LONGEST_TEXT)
        or (type(value) in (str, list) and key.lower() in _TEXTS)
        for key, value in logged.items()
    )


class FlatRecords:
    """Makes records of the dictionaries of one log; counts steps where none is logged.

    Lines before the first with a signal say nothing. A line without a step belongs to the step before;
    where no line has one, so does a line that by itself would be none of a trainer's. W&B's own counter
    is the step only where there is no other.
    """

    def __init__(self, mapped: Mapped) -> None:
        self._mapped = mapped
        self._step = 0
        self._begun = self._has_step = self._own = False
        self._digits = MixedDigits()

    def events(self, logged: Mapping[str, Any]) -> Iterator[Event]:
        """What one dictionary says. Raises ValueError: its step is invalid."""
        if "train_runtime" in logged:  # transformers' summary: means over the run, and its end
            yield Ended("finished")
            return
        values = flattened(logged)
        if PROGRESS in values:
            done, _, total = str(values[PROGRESS]).partition("/")
            yield TotalSteps(step(total))
            values = {**values, "step": done}
        measured = measured_values(values)
        if not measured or not self._advance(values):
            return
        time = time_key(values)
        record = Record(self._step, measured, None if time is None else sensible_seconds(values[time]))
        yield from self._digits.records(record)
        for key in values.keys() & _TOTALS:
            if planned := step(values[key]):
                yield TotalSteps(planned, key=key)
        if (number(values.get(_DONE)) or 0.0) >= 1:
            yield Ended("finished")

    def _is_measured(self, values: Mapping[str, Any]) -> bool:
        return _is_nameless(values) or measurements(_numeric(values), self._mapped) > 0

    def _advance(self, values: Mapping[str, Any]) -> bool:
        """Move on to the step of these values; whether they are of one."""
        self._begun = self._begun or self._is_measured(values)
        key = step_key(values) if self._begun else None
        if key is None:
            if not self._has_step and measurements(_numeric(values), self._mapped) >= 2:
                self._step += 1
            return self._has_step or self._step > 0
        if key not in WANDB_STEPS:
            self._has_step = self._own = True
            self._step = step(values[key])
        elif not self._own and self._is_measured(values):
            self._has_step, self._step = True, step(values[key])
        return True


def measured_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that are measured, without steps, times and what says how far the training is."""
    if _is_nameless(values):
        found = {name: values.get(key, "") for key, name in _NAMELESS.items()}
        return {name: value for name, value in found.items() if number(value) is not None}
    return {
        key: value
        for key, value in values.items()
        if number(value) is not None and normal(key) not in AXES and key not in _NOT_MEASURED
    }
