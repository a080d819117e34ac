"""What a run measured lately, step by step: by that it is known in another of its logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from math import isfinite, isnan
from typing import Any

STEPS = 32
SIGNALS = frozenset(
    {"reward", "entropy", "grad_norm", "response_length", "policy_loss", "kl", "learning_rate"}
)
"""Signals that nearly every trainer logs, and that hardly ever are the same twice."""

TIME = "step_seconds"  # no two runs take the same time for their steps, however alike their numbers are
_NOTED = (*SIGNALS, TIME)
DIGITS = 4
DECIMALS = 3
"""Logs round: to four digits (Transformers 5), or to three decimals (early verl); none rounds more."""
UNROUNDED = 9  # A log with more digits and decimals than that does not round
FLOAT = 1e-6  # Relative error of a 32-bit number, which event files hold, with some slack
COARSEST = 0.5e-3  # Half of the last of four digits, or of three decimals where the value is below 1
TELLING = 0.05  # below that, three decimals say too little
AGREEMENTS = 8  # So many values over four steps or more do not agree by chance
AGREEING_STEPS = 4


class Fingerprint:
    """A run's last steps with telling values; ``_digits`` and ``_decimals`` are the most of any value."""

    __slots__ = ("_decimals", "_digits", "_learned", "_steps")

    def __init__(self) -> None:
        self._steps: dict[int, dict[str, float]] = {}
        self._digits, self._decimals = DIGITS, DECIMALS
        self._learned = -1

    def note(self, step: int, found: Mapping[str, float]) -> None:
        """Take what a record measured."""
        telling = {signal: found[signal] for signal in _NOTED if signal in found}
        if not telling:
            return
        self._steps.setdefault(step, {}).update(telling)
        if len(self._steps) > STEPS:
            del self._steps[next(iter(self._steps))]

    def _learn_rounding(self) -> None:
        new = [found for step, found in self._steps.items() if step >= self._learned]
        self._learned = max(self._steps, default=-1)
        for found in new:
            if min(self._digits, self._decimals) >= UNROUNDED:
                return
            for value in filter(isfinite, found.values()):
                number = Decimal(repr(value)).normalize().as_tuple()
                self._digits = max(self._digits, len(number.digits))
                self._decimals = max(self._decimals, -int(number.exponent))

    def _rounding(self, value: float) -> float:
        """How far from the true value it may be."""
        return max(abs(value) * max(FLOAT, 0.5 * 10.0 ** (1 - self._digits)), 0.5 * 10.0**-self._decimals)

    def snapshot(self) -> list[list[Any]]:
        """What it holds, as plain JSON values: a page does not tell its steps a second time."""
        return [
            [step, {name: each for name, each in found.items() if isfinite(each)}]
            for step, found in self._steps.items()
        ]

    def restore(self, saved: Iterable[tuple[int, dict[str, float]]]) -> None:
        """Start from what ``snapshot`` returned."""
        for step, found in saved:
            self.note(step, found)

    def _differs(self, other: Fingerprint) -> bool:
        """Whether the last step alone shows two runs, even if both logs round: cheap, and mostly enough."""
        step = next(reversed(self._steps), None)
        if step not in other._steps:
            step = next(reversed(other._steps), None)
        mine, theirs = self._steps.get(step), other._steps.get(step)  # type: ignore[arg-type]
        if not mine or not theirs:
            return False
        for signal in SIGNALS & mine.keys() & theirs.keys():
            a, b = mine[signal], theirs[signal]
            if abs(a - b) > max(abs(a), 1.0) * COARSEST + max(abs(b), 1.0) * COARSEST:
                return True
        return False

    def is_same(self, other: Fingerprint) -> bool | None:
        """Whether it is one run; ``None`` if there is too little to compare. NaN equals NaN only."""
        if self._differs(other):
            return False
        shared: dict[int, set[float]] = {}
        for step, mine, theirs in self._common(other, SIGNALS):
            if not self._agree(mine, theirs, other):
                return False
            if abs(mine) > TELLING:
                shared.setdefault(step, set()).add(mine)
        values = set().union(*shared.values())
        return True if len(shared) >= AGREEING_STEPS and len(values) >= AGREEMENTS else None

    def took_as_long(self, other: Fingerprint) -> bool | None:
        """Whether the steps took the same times; ``None`` if there is too little to compare."""
        times = {
            step: self._agree(mine, theirs, other)
            for step, mine, theirs in self._common(other, frozenset({TIME}))
        }
        return all(times.values()) if len(times) >= AGREEING_STEPS else None

    def _agree(self, mine: float, theirs: float, other: Fingerprint) -> bool:
        if not (isfinite(mine) and isfinite(theirs)):
            return mine == theirs or (isnan(mine) and isnan(theirs))
        return abs(mine - theirs) <= self._rounding(mine) + other._rounding(theirs)

    def _common(self, other: Fingerprint, signals: frozenset[str]) -> Iterator[tuple[int, float, float]]:
        """Step, my value and theirs, wherever both have one."""
        self._learn_rounding()
        other._learn_rounding()
        for step in self._steps.keys() & other._steps.keys():
            mine, theirs = self._steps[step], other._steps[step]
            for signal in mine.keys() & theirs.keys() & signals:
                yield step, mine[signal], theirs[signal]
