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
    return Curve(name, tuple(_pieces(_thinned(values, steps))), severity)


def _thinned(values: Mapping[int, float], steps: Sequence[int]) -> Iterator[Point | None]:
    """The lowest and the highest of each stretch of records, in their order; None where nothing is finite."""
    width = 1 if len(steps) <= MOST_POINTS else math.ceil(2 * len(steps) / MOST_POINTS)
    for start in range(1, len(steps) + 1, width):
        stretch = range(start, min(start + width, len(steps) + 1))
        shown = [record for record in stretch if abs(values.get(record, math.nan)) < LARGEST]
        if not shown:
            yield None
            continue
        for record in sorted({min(shown, key=values.__getitem__), max(shown, key=values.__getitem__)}):
            yield steps[record - 1], values[record]


def _pieces(points: Iterable[Point | None]) -> Iterator[tuple[Point, ...]]:
    piece: list[Point] = []
    for point in (*points, None):
        if piece and (point is None or point[0] < piece[-1][0]):
            yield tuple(piece)
            piece = []
        if point is not None:
            piece.append(point)
