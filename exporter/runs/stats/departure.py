"""What moved first: the step at which a signal left the band of its healthy stretch, to stay outside.

Definitions, for the values of one signal up to now, and the onset of the run's leading alert:

- smoothed: the median of each value and its two neighbours, so there is none of the first and the last one,
  in an exponentially weighted mean with weight 0.3.
- A split has a healthy stretch before it: the smoothed values of as many steps as lie between the split
  and the onset, at least 20. So what moved for 200 steps has to have stood still for 200 before. Where there
  are fewer, half of them do, and 10 at least.
- The band of a stretch is its range, but no narrower than 1 % of the largest value so far.
- A split counts if the present smoothed value is more than four bands beyond its band. A signal that goes
  on as it went in the stretch is one band beyond it, one that speeds up from standing is far.
- Of the splits that count, the last one that has 0.8 of the largest distance tells the healthy stretch: the
  one nearest to the onset, since earlier ones know an earlier usual.

The departure is the first of the values since which the signal has stayed beyond that band, by a quarter of
it and by 2 % of the way that it has gone since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

LEAST_STRETCH, USUAL_STRETCH = 10, 20
LEAST_BAND = 0.01  # of the largest value: a signal that was constant has no range
FAR = 4.0  # bands. In real runs that are fine, one signal in 30 is as far from where it was
NEAR = 0.8
"""Of the largest distance. With 0.7 falls over 200 steps are found later, with 0.9 an old change of level is
taken for the new one more often."""
MARGIN, BEGUN = 0.25, 0.02
"""Of a band, and of the way to the present value: with 5 %, the step of what explodes moves with its way."""
WEIGHT = 0.3  # of the newest value: a mean over the last five or so
DEVIATIONS = 4.0  # standard deviations in a band: the range of 20 independent normal values has 3.7


class Departure(NamedTuple):
    """When a signal left its band, and how far beyond its middle it is, in standard deviations, with sign."""

    step: int
    deviations: float


def departure(points: Sequence[tuple[int, float]], onset: int, worse: str) -> Departure | None:
    """Return the departure of a signal, of which ``points`` are (step, value), at the step of an onset.

    ``worse`` is ``up``, ``down`` or ``both``: a move the other way is none.
    """
    smoothed = list(_smoothed([value for _, value in points]))
    steps = [step for step, _ in points[1:-1]]
    before = sum(step < onset for step in steps)
    for way, sign in (("up", 1.0), ("down", -1.0)):
        if worse in (way, "both") and (found := _rise([sign * value for value in smoothed], before)):
            place, deviations = found
            return Departure(steps[place], sign * deviations)
    return None


def _smoothed(values: Sequence[float]) -> Iterator[float]:
    mean = None
    for three in zip(values, values[1:], values[2:], strict=False):
        middle = median(three)
        mean = middle if mean is None else mean + WEIGHT * (middle - mean)
        yield mean


def _rise(smoothed: Sequence[float], onset: int) -> tuple[int, float] | None:
    """The place at which values rose out of their band, and by how many deviations they are out now."""
    splits = list(_splits(smoothed, onset))
    farthest = max((distance for distance, _, _ in splits), default=0.0)
    if farthest <= FAR:
        return None
    distance, top, band = next(
        split for split in reversed(splits) if split[0] > FAR and split[0] >= NEAR * farthest
    )
    place, edge = len(smoothed) - 1, top + max(MARGIN, BEGUN * distance) * band
    while smoothed[place - 1] > edge:
        place -= 1
    return place, DEVIATIONS * (distance + 0.5)


def _splits(smoothed: Sequence[float], onset: int) -> Iterator[tuple[float, float, float]]:
    """Yield, for each split, how many bands the last value is beyond its band, the band's top and height.

    Both ends of the stretch only move on, so queues hold the candidates for its highest and lowest value.
    """
    least = LEAST_BAND * max(map(abs, smoothed), default=0.0)
    highs, lows = deque[int](), deque[int]()
    for split in range(1, len(smoothed)):
        last = split - 1
        while highs and smoothed[highs[-1]] <= smoothed[last]:
            highs.pop()
        while lows and smoothed[lows[-1]] >= smoothed[last]:
            lows.pop()
        highs.append(last)
        lows.append(last)
        wanted = max(USUAL_STRETCH, onset - split)
        first = max(0, split - wanted)
        while highs[0] < first:
            highs.popleft()
        while lows[0] < first:
            lows.popleft()
        if split - first < max(LEAST_STRETCH, wanted / 2):
            continue
        top = smoothed[highs[0]]
        band = max(top - smoothed[lows[0]], least)
        if band > 0 and smoothed[-1] > top:
            yield (smoothed[-1] - top) / band, top, band
