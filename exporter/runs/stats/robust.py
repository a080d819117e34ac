"""The usual size of values that are often 0 and sometimes huge, such as a gradient norm.

A plain mean holds a spike until it leaves the window, and what comes after it looks small. A median
drops to nothing when most batches have next to no gradient. The mean in which no value counts for
more than a few times that mean stays with both.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise

MOST = 4
"""How many times the mean one value may count for: a quarter of the values may be spikes."""

LEAST_VALUES = 10


def level(values: list[float]) -> float | None:
    """Return the capped mean of the values that are not 0, or ``None`` for fewer than 10 of these."""
    found = [abs(value) for value in values if value]
    return _capped_mean(found) if len(found) >= LEAST_VALUES else None


def spread(values: list[float]) -> float | None:
    """Return how far neighbours among the values that are not 0 lie apart, as a standard deviation.

    ``None`` for fewer than 10 of these. A large difference counts like a large value of ``level``.
    """
    found = [abs(value) for value in values if value]
    if len(found) < LEAST_VALUES:
        return None
    return math.sqrt(math.pi) / 2 * _capped_mean([abs(value - before) for before, value in pairwise(found)])


def _capped_mean(values: list[float]) -> float:
    """The largest mean that the values, none below 0, have when each counts for ``MOST`` times it at most.

    With the ``capped`` largest at that limit, mean = (sum of the others + capped x MOST x mean) / count.
    """
    rising = sorted(values)
    sums = list(accumulate(rising))
    count = len(rising)
    means = ((rising[-1 - capped], sums[-1 - capped] / (count - MOST * capped)) for capped in range(count))
    return next(mean for largest, mean in means if largest <= MOST * mean)
