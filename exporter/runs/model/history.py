"""The history of a run over its steps: rebuilt from the log at each start, bounded however long it is."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.runs.signals import SIGNALS
from exporter.runs.stats.departure import Departure, departure
from exporter.runs.stats.statistics import SignalStatistics, is_measured

Point = tuple[int, float]  # A step, and the value there
LARGEST = 1e300  # where a value is larger than that, the height of a chart may not be a number any more
MOST_STRETCHES = 512  # once there are as many, each two become one: a curve takes at most 17 kB
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


FINEST = Detail()  # of a single run


class Extremes:
    """The lowest and the highest value of each stretch of measurements, and at which steps they were.

    A stretch is one measurement wide at first; the width doubles whenever there are too many. The curve
    is broken before a stretch if a value that is not a number came before it, or another attempt began.
    """

    __slots__ = (
        *("_begun", "_breaks", "_broken", "_detail", "_high", "_high_steps", "_highs"),
        *("_low", "_low_steps", "_lows", "_room", "_width"),
    )

    def __init__(self, detail: Detail = FINEST) -> None:
        self._detail = detail
        self._lows, self._highs = array("d"), array("d")
        self._low_steps, self._high_steps = array("q"), array("q")
        self._breaks = bytearray()
        self._width, self._room, self._begun = 1, 0, 0
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
            self._room -= 1
            if value < self._low:
                self._low = self._lows[-1] = value
                self._low_steps[-1] = step
            else:
                self._high = self._highs[-1] = value
                self._high_steps[-1] = step

    def breaks(self) -> None:
        """What comes next does not go on from what was last."""
        self._broken = True
        self.begins()

    def begins(self) -> None:
        """What comes next is not to be compared with what was before."""
        self._room, self._begun = 0, len(self._lows)

    def middles(self) -> list[Point]:
        """The first step and the middle of each stretch of the present attempt, since its last mark."""
        steps = map(min, self._low_steps[self._begun :], self._high_steps[self._begun :])
        ends = zip(self._lows[self._begun :], self._highs[self._begun :], strict=True)
        return [(step, (low + high) / 2) for step, (low, high) in zip(steps, ends, strict=True)]

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

    def _begin(self, step: int, value: float) -> None:
        while len(self._lows) >= self._detail.stretches:
            # one stretch of each two; a break between them is drawn before both
            self._lows, self._low_steps = _folded(min, self._lows, self._low_steps)
            self._highs, self._high_steps = _folded(max, self._highs, self._high_steps)
            self._breaks = bytearray(map(max, self._breaks[::2], self._breaks[1::2]))
            self._begun = (self._begun + 1) // 2
            self._width *= 2
        self._low = self._high = value
        self._lows.append(value)
        self._highs.append(value)
        self._low_steps.append(step)
        self._high_steps.append(step)
        self._breaks.append(self._broken)
        self._broken, self._room = False, self._width - 1

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


DRAWN = frozenset({
    "reward",
    "validation_score",
    "kl",
    "kl_teacher",
    "policy_kl",
    "kl_engine",
    "engine_prob_diff",
    "engine_prob_diff_max",
    "staleness",
    "staleness_max",
    "entropy",
    "policy_loss",
    "policy_clip_ratio",
    "value_loss",
    "grad_norm",
    "critic_grad_norm",
    "explained_variance",
    "mfu_ratio",
    "rollout_seconds",
    "update_actor_seconds",
    "step_seconds",
    "response_length",
    "tokens_per_second",
    "tokens_per_second_per_gpu",
    "gpu_memory_allocated_bytes",
    "gpu_memory_reserved_bytes",
    "truncated_ratio",
    "zero_std_ratio",
})  # fmt: skip
"""The signals of the panels; a test demands that these are all."""

WORSE = {signal.name: signal.worse for signal in SIGNALS if signal.worse}
"""The signals that may be what moved first, with the way in which they get worse. No other takes memory."""

RESTARTS = 20  # the last of a run that are drawn
ROWS = 20  # steps that are shown one by one


SMOOTHED = frozenset({"reward"})  # the signals whose smoothed values are drawn as well


@dataclass(frozen=True, slots=True)
class Row:
    """One of the last steps: what was measured in it, by signal. ``time`` is ``None`` where it is unknown."""

    step: int
    time: float | None
    values: Mapping[str, float]


class HistorySnapshot(NamedTuple):
    """A run's history at one moment; ``restarts`` are steps at which it went on from a checkpoint."""

    curves: Mapping[str, Extremes]
    means: Mapping[str, Extremes]
    rows: tuple[Row, ...]
    restarts: tuple[int, ...] = ()


def departures(curves: Mapping[str, Extremes], onset: int) -> tuple[tuple[str, Departure], ...]:
    """Return the signals that left their bands around the step of an onset, the first one first."""
    found = (
        (signal, departure(curve.middles(), onset, WORSE[signal]))
        for signal, curve in curves.items()
        if signal in WORSE
    )
    left = [(signal, away) for signal, away in found if away]
    return tuple(sorted(left, key=lambda each: (each[1].step, -abs(each[1].deviations))))


class History:
    """Curves, smoothed curves, and the last steps. A mark changes nothing that is drawn."""

    __slots__ = ("_adders", "_curves", "_detail", "_drawn", "_kept", "_means", "_restarts", "_rows")

    def __init__(self, detail: Detail, own: frozenset[str] = frozenset()) -> None:
        self._detail, self._drawn = detail, DRAWN | own if own else DRAWN
        self._kept = self._drawn | WORSE.keys()
        self._curves: dict[str, Extremes] = {}
        self._adders: dict[str, Callable[[int, float], None]] = {}
        self._means: dict[str, Extremes] = {}
        self._rows: deque[tuple[int, float | None, Mapping[str, float]]] = deque(maxlen=ROWS)
        self._restarts: deque[int] = deque(maxlen=RESTARTS)

    def note(
        self,
        step: int,
        time: float | None,
        new: Mapping[str, float],
        statistics: Mapping[str, SignalStatistics],
    ) -> None:
        """Take what a record measured, after the statistics did. ``time`` in seconds since the epoch."""
        for signal, value in new.items():
            if add := self._adders.get(signal):
                add(step, value)
            elif signal in self._kept and (value or is_measured(signal, statistics)):
                curve = self._curves[signal] = Extremes(self._detail)
                self._adders[signal] = curve.add
                curve.add(step, value)
            if signal in SMOOTHED and (mean := statistics[signal].mean()) is not None:
                self._means.setdefault(signal, Extremes(self._detail)).add(step, mean)
        if self._rows and self._rows[-1][0] == step:
            new = {**self._rows.pop()[2], **new}
        self._rows.append((step, time, new))

    def resume(self, step: int) -> None:
        """Another attempt continues from an earlier step."""
        self._restarts.append(step)
        for curve in (*self._curves.values(), *self._means.values()):
            curve.breaks()

    def mark(self) -> None:
        """Someone intends a change of level from here on."""
        for curve in self._curves.values():
            curve.begins()

    def departures(self, onset: int) -> tuple[tuple[str, Departure], ...]:
        """What left its band, as ``departures``."""
        return departures(self._curves, onset)

    def snapshot(self) -> HistorySnapshot:
        """Return a copy, which stays as it is."""
        shown = self._curves.keys() & self._drawn
        return HistorySnapshot(
            {signal: curve.copy() for signal, curve in self._curves.items()},
            {signal: curve.copy() for signal, curve in self._means.items()},
            tuple(
                Row(step, time, {name: value for name, value in values.items() if name in shown})
                for step, time, values in self._rows
            ),
            tuple(self._restarts),
        )
