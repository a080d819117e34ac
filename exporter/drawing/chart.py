"""What a chart shows: curves over training steps, limits, and when alerts fired; and its scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeVar

MOST_POINTS = 400
"""Points of one curve: a chart is not wider than that."""

LARGEST = 1e300
"""Where a value is larger than that, the height of a chart may not be a number any more."""

SEVERITIES = ("critical", "warning", "info")
"""The worst first."""

Point = tuple[int, float]
"""A step, and the value there."""


@dataclass(frozen=True)
class Curve:
    """A line's name and its pieces: broken where there is no finite value, and where the step goes back.

    ``severity`` is that of the alert whose limit it is; of what a run logged it is empty.
    """

    name: str
    pieces: tuple[tuple[Point, ...], ...]
    severity: str = ""

    @property
    def values(self) -> list[float]:
        """All that is drawn."""
        return [value for piece in self.pieces for _, value in piece]


@dataclass(frozen=True)
class Band:
    """An alert fired from one step to another."""

    alert: str
    severity: str
    first_step: int
    last_step: int


@dataclass(frozen=True)
class Mark:
    """What happened to the run at a step: a restart, an operator's mark, an action."""

    step: int
    words: str


@dataclass(frozen=True)
class Chart:
    """A panel filled with a run from its ``first`` to its ``last`` step.

    ``unit`` is Grafana's name for it; ``low`` and ``high`` are where its axis ends, if that is fixed.
    """

    title: str
    description: str
    unit: str
    low: float | None
    high: float | None
    first: int
    last: int
    curves: tuple[Curve, ...]
    limits: tuple[Curve, ...]
    bands: tuple[Band, ...]
    marks: tuple[Mark, ...] = ()


class Fired(Protocol):
    """An alert that began to fire at a step."""

    @property
    def alert(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def first_step(self) -> int: ...


Some = TypeVar("Some", bound=Fired)


def rank(severity: str) -> int:
    """Return the place of a severity among ours, the worst first; an unknown one comes last."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def by_alert(fired: Iterable[Some]) -> list[tuple[Some, ...]]:
    """Return the times of each alert, the worst severity first, then the earliest."""

    def key(alert: Some) -> tuple[int, str, str]:
        return rank(alert.severity), alert.severity, alert.alert

    together = [tuple(times) for _, times in groupby(sorted(fired, key=key), key=key)]
    return sorted(together, key=lambda times: (rank(times[0].severity), times[0].first_step))


def curve(name: str, values: Mapping[int, float], steps: Sequence[int], severity: str = "") -> Curve:
    """Return the curve of values by record (the first is 1), of which these are the steps."""
    points = [(step, values.get(record, math.nan)) for record, step in enumerate(steps, 1)]
    return Curve(name, _pieces(points), severity)


def thinned(curve: Curve) -> Curve:
    """Return the same curve with at most ``MOST_POINTS`` points; extremes are kept."""
    points = [point for piece in curve.pieces for point in (*piece, (0, math.nan))]
    return Curve(curve.name, _pieces(points), curve.severity)


def _pieces(points: Sequence[Point]) -> tuple[tuple[Point, ...], ...]:
    finite = [point if abs(point[1]) < LARGEST else None for point in points]
    if len(points) > MOST_POINTS:
        width = math.ceil(2 * len(points) / MOST_POINTS)
        stretches = (finite[start : start + width] for start in range(0, len(points), width))
        finite = [point for stretch in stretches for point in _extremes(stretch)]
    pieces: list[list[Point]] = []
    before = None
    for point in finite:
        if point is not None:
            if before is None or point[0] < before[0]:
                pieces.append([])
            pieces[-1].append(point)
        before = point
    return tuple(map(tuple, pieces))


def _extremes(stretch: Sequence[Point | None]) -> list[Point | None]:
    """Return the lowest and the highest point, in their order; ``None`` where nothing is finite."""
    there = [point for point in stretch if point is not None]
    if not there:
        return [None]
    values = [value for _, value in there]
    return [there[place] for place in sorted({values.index(min(values)), values.index(max(values))})]


WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 104, 684, 16, 280
"""Where the curves are, in units of the picture. A phone shows some two of these in a pixel."""

BEYOND = 1.0
"""How far beyond the curves a limit may lie to be drawn, in heights of the curves: else they were flat."""


@dataclass(frozen=True)
class Scale:
    """From steps and values to places in the picture."""

    first: float
    last: float
    low: float
    high: float

    def x(self, step: float) -> int:
        return round(LEFT + (step - self.first) / (self.last - self.first) * (RIGHT - LEFT))

    def y(self, value: float) -> int:
        return round(BOTTOM - (value - self.low) / (self.high - self.low) * (BOTTOM - TOP))

    def shows(self, value: float) -> bool:
        return self.low <= value <= self.high


def scale(chart: Chart) -> Scale:
    """Return the part of the plane that holds all curves, and each limit that is not far off."""
    values = [value for curve in chart.curves for value in curve.values]
    low, high = min(values), max(values)
    air = 0.05 * (high - low) or 0.5 * abs(high) or 1  # where the panel sets no end
    low = low - air if chart.low is None else min(chart.low, low)
    high = high + air if chart.high is None else max(chart.high, high)
    reach = BEYOND * (high - low)
    limits = (value for limit in chart.limits for value in limit.values)
    near = [value for value in limits if low - reach <= value <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    alone = 0.5 * (chart.first == chart.last)
    return Scale(chart.first - alone, chart.last + alone, low, high)


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((2**40, " TiB"), (2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"))


def round_values(low: float, high: float, unit: str, about: int) -> list[float]:
    """Return values that are round in the unit in which they are written."""
    largest = max(abs(low), abs(high))
    size = next((size for size, _ in _BINARY if largest >= size), 1) if unit == "bytes" else 1
    return [tick * size for tick in round_multiples(low / size, high / size, about)]


def round_multiples(low: float, high: float, about: int) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten: this number between two, or up to twice that."""
    widest = max((high - low) / about * (1 + 1e-9), 1e-300)
    power = 10.0 ** math.floor(math.log10(widest))
    step = next(factor * power for factor in (5, 2, 1) if factor * power <= widest)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # 3 * 0.1 is not 0.3
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def round_steps(first: int, last: int, about: int) -> list[int]:
    """Return round training steps between two, likewise; all of them if they are few."""
    if last - first < 2 * about:
        return list(range(first, last + 1))
    return [round(tick) for tick in round_multiples(first, last, about)]


def format_number(value: float, unit: str = "short") -> str:
    """Return a number in four digits, with Grafana's unit of this name."""
    if unit == "percentunit":
        return f"{100 * value:.4g} %"
    size, after = 1.0, " s" if unit == "s" else ""
    if unit == "bytes":
        size, after = next((each for each in _BINARY if abs(value) >= each[0]), (1.0, " B"))
    elif 10_000 <= abs(value) < 1e15:
        size, prefix = next(each for each in _PREFIXES if abs(value) >= each[0])
        after = prefix + after
    return f"{value / size:.4g}{after}"
