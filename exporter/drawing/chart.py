"""What a chart shows: curves over training steps, limits, and when alerts fired."""

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
