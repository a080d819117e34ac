"""What a run measured lately, step by step: by that it is known in another of its logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

STEPS = 32
SIGNALS = ("reward", "entropy", "grad_norm", "response_length", "policy_loss", "kl", "learning_rate")
"""Signals that nearly every trainer logs, and that hardly ever are the same twice."""

CLOSE = 1e-3
"""Logs round: to four digits (Transformers 5), or to three decimals (early verl)."""
TELLING = 0.05
"""Below that, three decimals say too little."""
AGREEMENTS = 8
"""So many values over four steps or more are no chance."""
AGREEING_STEPS = 4


class Trace:
    """The last steps of a run with the values that tell it from others."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: dict[int, dict[str, float]] = {}

    def note(self, step: int, found: Mapping[str, float]) -> None:
        """Take what a record measured."""
        telling = {signal: found[signal] for signal in SIGNALS if signal in found}
        if not telling:
            return
        self._steps.setdefault(step, {}).update(telling)
        if len(self._steps) > STEPS:
            del self._steps[next(iter(self._steps))]

    def kept(self) -> list[list[Any]]:
        """What it holds, as plain JSON values: a page does not tell its steps a second time."""
        return [
            [step, {name: each for name, each in found.items() if isfinite(each)}]
            for step, found in self._steps.items()
        ]

    def restore(self, kept: Iterable[tuple[int, dict[str, float]]]) -> None:
        """Start from what ``kept`` returned."""
        self._steps = {step: dict(found) for step, found in kept}

    def is_same(self, other: Trace) -> bool | None:
        """Is it one run? ``None``: there is too little to tell."""
        told: dict[int, set[float]] = {}
        for step, mine, theirs in self._common(other):
            if abs(mine - theirs) > CLOSE * max(1.0, abs(mine), abs(theirs)):
                return False
            if abs(mine) > TELLING:
                told.setdefault(step, set()).add(mine)
        values = set().union(*told.values())
        return True if len(told) >= AGREEING_STEPS and len(values) >= AGREEMENTS else None

    def _common(self, other: Trace) -> Iterator[tuple[int, float, float]]:
        """Step, my value and theirs, wherever both have one."""
        for step in self._steps.keys() & other._steps.keys():
            mine, theirs = self._steps[step], other._steps[step]
            for signal in mine.keys() & theirs.keys():
                yield step, mine[signal], theirs[signal]
