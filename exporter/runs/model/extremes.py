"""One signal over all steps of a run, in as little memory for a million steps as for a thousand."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator

from exporter.drawing.chart import LARGEST, Point

MOST_STRETCHES = 512
"""Once there are as many, each two become one: a curve takes at most 17 kB."""

LEAST_STRETCHES = 64
ALL_STRETCHES = 64 * 1024
"""Of one signal of all runs together: with more than 128 runs, each has a coarser curve."""


class Detail:
    """How fine the curves of all runs are: the more runs there are, the coarser is each one's."""

    def __init__(self) -> None:
        self.stretches = MOST_STRETCHES

    def set_runs(self, runs: int) -> None:
        """Fit the curves of this number of runs into memory."""
        self.stretches = MOST_STRETCHES
        while self.stretches > LEAST_STRETCHES and self.stretches * runs > ALL_STRETCHES:
            self.stretches //= 2


FINEST = Detail()
"""Of a single run."""


class Extremes:
    """The lowest and the highest value of each stretch of measurements, and at which steps they were.

    A stretch is one measurement wide at first; the width doubles whenever there are too many. The curve
    is broken before a stretch if a value that is not a number came before it, or another attempt began.
    """

    __slots__ = (
        "_breaks",
        "_broken",
        "_detail",
        "_high",
        "_high_steps",
        "_highs",
        "_low",
        "_low_steps",
        "_lows",
        "_room",
        "_width",
    )

    def __init__(self, detail: Detail = FINEST) -> None:
        self._detail = detail
        self._lows, self._highs = array("d"), array("d")
        self._low_steps, self._high_steps = array("q"), array("q")
        self._breaks = bytearray()
        self._width, self._room = 1, 0
        self._low = self._high = 0.0
        self._broken = False

    def add(self, step: int, value: float) -> None:
        """Take the value of a step."""
        if self._room and self._low <= value <= self._high:  # as most are, which is what this costs
            self._room -= 1
        elif not abs(value) < LARGEST:
            self._broken = True
        elif not self._room:
            self._begin(step, value)
        else:
            self._widen(step, value)

    def breaks(self) -> None:
        """What comes next does not go on from what was last."""
        self._broken, self._room = True, 0

    def pieces(self) -> tuple[tuple[Point, ...], ...]:
        """The curve: the extremes in the order of their steps."""
        return tuple(map(tuple, self._pieces()))

    def series(self) -> Iterator[Point]:
        """The curve in one; where it is broken stands a point that is not a number."""
        end: Point | None = None
        for piece in self._pieces():
            if end:
                yield end
            yield from piece
            end = piece[-1][0] + 1, math.nan
        if end and self._broken:
            yield end

    def copy(self) -> Extremes:
        """The same, which stays as it is."""
        copy = Extremes(self._detail)
        for name in self.__slots__:
            own = getattr(self, name)
            setattr(copy, name, own[:] if isinstance(own, array | bytearray) else own)
        return copy

    def _widen(self, step: int, value: float) -> None:
        self._room -= 1
        if value < self._low:
            self._low = self._lows[-1] = value
            self._low_steps[-1] = step
        else:
            self._high = self._highs[-1] = value
            self._high_steps[-1] = step

    def _begin(self, step: int, value: float) -> None:
        while len(self._lows) >= self._detail.stretches:
            self._fold()
        self._low = self._high = value
        self._lows.append(value)
        self._highs.append(value)
        self._low_steps.append(step)
        self._high_steps.append(step)
        self._breaks.append(self._broken)
        self._broken, self._room = False, self._width - 1

    def _fold(self) -> None:
        """Make one stretch of each two; a break between them is drawn before both."""
        self._lows, self._low_steps = _folded(min, self._lows, self._low_steps)
        self._highs, self._high_steps = _folded(max, self._highs, self._high_steps)
        self._breaks = bytearray(map(max, self._breaks[::2], self._breaks[1::2]))
        self._width *= 2

    def _pieces(self) -> Iterator[list[Point]]:
        piece: list[Point] = []
        stretches = zip(self._breaks, self._low_steps, self._lows, self._high_steps, self._highs, strict=True)
        for broken, low_step, low, high_step, high in stretches:
            points = (
                [(low_step, low)] if low_step == high_step else sorted([(low_step, low), (high_step, high)])
            )
            if piece and (broken or points[0][0] < piece[-1][0]):
                yield piece
                piece = []
            piece += points
        if piece:
            yield piece


def _folded(
    choose: Callable[..., tuple[float, int]], values: array[float], steps: array[int]
) -> tuple[array[float], array[int]]:
    """The chosen one of each two neighbours, with its step."""
    both = list(zip(values, steps, strict=True))
    chosen = [choose(pair) for pair in zip(both[::2], both[1::2], strict=True)]
    return array("d", [value for value, _ in chosen]), array("q", [step for _, step in chosen])
