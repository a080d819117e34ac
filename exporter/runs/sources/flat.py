"""Flat dictionaries of numbers, as home-made loops and transformers log them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from exporter.runs.numbers import number
from exporter.runs.record import Ended, Event, Record, TotalSteps
from exporter.runs.signals import measurements
from exporter.runs.signals.axes import AXES, PROGRESS, sensible_seconds, step, step_key, time_key
from exporter.runs.signals.key import normal

_TOTALS = frozenset({"total_steps", "max_steps"})
_DONE = "progress/done_frac"
"""Tinker's: the share of the training that is done."""

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


def is_record(logged: Any) -> bool:
    """Are these measurements: one of a told step, or two?"""
    if not isinstance(logged, dict) or len(logged) > _MOST_KEYS or is_sample(logged):
        return False
    values = flattened(logged)
    numeric = tuple(key for key, value in values.items() if number(value) is not None)
    told = PROGRESS in values or step_key(numeric) is not None
    return measurements(numeric) >= (1 if told else 2)


def is_sample(logged: Mapping[str, Any]) -> bool:
    """Is it a prompt with its answer, or other text?"""
    return any(
        (type(value) is str and len(value) > _LONGEST_TEXT)
        or (type(value) in (str, list) and key.lower() in _TEXTS)
        for key, value in logged.items()
    )


class FlatRecords:
    """Makes records of the dictionaries of one log; counts steps where none is told."""

    def __init__(self) -> None:
        self._step = 0
        self._told = False

    def events(self, logged: Mapping[str, Any]) -> Iterator[Event]:
        """What one dictionary says.

        Raises:
            ValueError: its step is none.
        """
        if "train_runtime" in logged:  # transformers' summary: means over the run, and its end
            yield Ended("finished")
            return
        values = flattened(logged)
        if PROGRESS in values:
            done, _, total = str(values[PROGRESS]).partition("/")
            yield TotalSteps(step(total))
            values = {**values, "step": done}
        measured = _measured(values)
        if measured:
            yield Record(self._next(values), measured, _time(values))
            yield from _about_the_end(values)

    def _next(self, values: Mapping[str, Any]) -> int:
        key = step_key(values)
        if key is not None:
            self._told, self._step = True, step(values[key])
        elif not self._told:
            self._step += 1
        return self._step


def _about_the_end(values: Mapping[str, Any]) -> Iterator[Event]:
    """How many steps there will be, and whether that was the last."""
    for key in values.keys() & _TOTALS:
        yield TotalSteps(step(values[key]))
    if (number(values.get(_DONE)) or 0.0) >= 1:
        yield Ended("finished")


def _time(values: Mapping[str, Any]) -> float | None:
    key = time_key(values)
    return None if key is None else sensible_seconds(values[key])


def _measured(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in values.items()
        if number(value) is not None and normal(key) not in AXES and key not in (PROGRESS, *_TOTALS)
    }
