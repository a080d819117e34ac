"""A curve over training steps, with no more points than can be seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

MOST_POINTS = 400
"""Of one curve: a chart is not wider than that."""

LARGEST = 1e300
"""Where a value is larger than that, the height of a chart may be no number any more."""

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


def curve(name: str, values: Mapping[int, float], steps: Sequence[int], severity: str = "") -> Curve:
    """The curve of values by record (the first is 1), of which these are the steps."""
    points = [_finite(step, values.get(record, math.nan)) for record, step in enumerate(steps, 1)]
    return Curve(name, tuple(_pieces(_thinned(points))), severity)


def thinned(curve: Curve) -> Curve:
    """The same curve with at most ``MOST_POINTS`` points; what stands out is kept."""
    points = [point for piece in curve.pieces for point in (*(_finite(*each) for each in piece), None)]
    return Curve(curve.name, tuple(_pieces(_thinned(points))), curve.severity)


def _finite(step: int, value: float) -> Point | None:
    return (step, value) if abs(value) < LARGEST else None


def _thinned(points: Sequence[Point | None]) -> Iterable[Point | None]:
    """The lowest and the highest of each stretch of points, in their order; None where nothing is finite."""
    if len(points) <= MOST_POINTS:
        return points
    width = math.ceil(2 * len(points) / MOST_POINTS)
    stretches = (points[start : start + width] for start in range(0, len(points), width))
    return (point for stretch in stretches for point in _shown(stretch))


def _shown(stretch: Sequence[Point | None]) -> Sequence[Point | None]:
    there = [point for point in stretch if point is not None]
    return _extremes(there) if there else [None]


def _extremes(points: Sequence[Point]) -> list[Point]:
    values = [value for _, value in points]
    return [points[place] for place in sorted({values.index(min(values)), values.index(max(values))})]


def _pieces(points: Iterable[Point | None]) -> Iterator[tuple[Point, ...]]:
    piece: list[Point] = []
    for point in (*points, None):
        if piece and (point is None or point[0] < piece[-1][0]):
            yield tuple(piece)
            piece = []
        if point is not None:
            piece.append(point)
