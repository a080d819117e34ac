"""What a signal's history leaves behind: means, start, peak, noise, best. Constant memory each.

Every tracker takes values with ``add(value, step)``, forgets its windows with ``resume()``, and
hands over what a restart must not lose with ``snapshot()`` and ``restore()``. The definitions stand in
``statistics``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from itertools import accumulate, pairwise
from statistics import fmean, median
from typing import Any

# The usual size of values that are often 0 and sometimes huge, such as a gradient norm.
#
# A plain mean holds a spike until it leaves the window, and what comes after it looks small. A median
# drops to nothing when most batches have next to no gradient. The mean in which no value counts for
# more than a few times that mean stays with both.
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


WINDOW = 64
START_VALUES = 5
NOISE_PER_DIFFERENCE = math.sqrt(math.pi) / 2
NOISE_FROM = 6
BEST_FROM = 3
PATIENCE_FROM = 5
TREND_WINDOWS = {"0.5": 3, "0.3": 5, "0.1": 20}
"""Over how many steps the drawdown of each mean is looked at: the quicker it is, the fewer tell."""

PATIENCE_NOISES = 0.16


class Estimator(ABC):
    """One thing remembered about a signal."""

    __slots__ = ()

    @abstractmethod
    def add(self, value: float, step: int, /) -> None:
        """Take the finite value of one record."""

    def resume(self) -> None:  # noqa: B027  (most have no window)
        """Forget the windows: the next value belongs to another attempt."""

    @abstractmethod
    def snapshot(self) -> Any:
        """What a resume keeps, as plain JSON values."""

    @abstractmethod
    def restore(self, saved: Any) -> None:
        """Start from what ``snapshot`` returned."""


class Ewma:
    """Exponentially weighted mean with a warm start."""

    __slots__ = ("alpha", "count", "mean")

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.count = 0
        self.mean = 0.0

    def add(self, value: float) -> float:
        """Take a value; returns the new mean."""
        self.count += 1
        self.mean += max(self.alpha, 1 / self.count) * (value - self.mean)
        return self.mean

    def snapshot(self) -> list[float]:
        """Count and mean."""
        return [self.count, self.mean]

    def restore(self, saved: list[float]) -> None:
        """Go on from a count and a mean."""
        self.count, self.mean = int(saved[0]), saved[1]


class Noise(Estimator):
    """Step-to-step spread of a signal."""

    __slots__ = ("differences", "last")

    def __init__(self) -> None:
        self.differences: deque[float] = deque(maxlen=WINDOW)
        self.last: float | None = None

    def add(self, value: float, _step: int) -> None:
        if self.last is not None:
            self.differences.append(abs(value - self.last))
        self.last = value

    def resume(self) -> None:
        self.last = None

    def snapshot(self) -> list[float]:
        return list(self.differences)

    def restore(self, saved: list[float]) -> None:
        self.differences.extend(saved)

    def value(self) -> float | None:
        """Standard deviation, or ``None`` before the 6th difference."""
        if len(self.differences) < NOISE_FROM:
            return None
        return NOISE_PER_DIFFERENCE * fmean(self.differences)


class Start(Estimator):
    """Median of the first values."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: list[float] = []

    def add(self, value: float, _step: int) -> None:
        if len(self.values) < START_VALUES:
            self.values.append(value)

    def snapshot(self) -> list[float]:
        return self.values

    def restore(self, saved: list[float]) -> None:
        self.values = list(saved)

    def value(self) -> float | None:
        """The median, or ``None`` before the 5th value."""
        return median(self.values) if len(self.values) == START_VALUES else None


class Peak(Estimator):
    """Running maximum of a slow mean: a spike of a small batch does not set it."""

    __slots__ = ("highest", "slow")

    def __init__(self) -> None:
        self.slow = Ewma(0.05)
        self.highest: float | None = None

    def add(self, value: float, _step: int) -> None:
        mean = self.slow.add(value)
        if self.highest is None or mean > self.highest:
            self.highest = mean

    def snapshot(self) -> list[Any]:
        return [self.slow.snapshot(), self.highest]

    def restore(self, saved: list[Any]) -> None:
        self.slow.restore(saved[0])
        self.highest = saved[1]

    def value(self) -> float | None:
        """The peak, or ``None`` before the first value."""
        return self.highest


class Confirmed(Estimator):
    """Running maximum of the smaller of two values in a row: one lucky value does not set it."""

    __slots__ = ("highest", "last")

    def __init__(self) -> None:
        self.highest: float | None = None
        self.last: float | None = None

    def add(self, value: float, _step: int) -> None:
        if self.last is not None:
            both = min(self.last, value)
            self.highest = both if self.highest is None else max(self.highest, both)
        self.last = value

    def resume(self) -> None:
        self.last = None

    def snapshot(self) -> float | None:
        return self.highest

    def restore(self, saved: float | None) -> None:
        self.highest = saved

    def value(self) -> float | None:
        """The best confirmed level, or ``None`` before the second value."""
        return self.highest


class RecentMeans(Estimator):
    """The last values of an exponentially weighted mean."""

    __slots__ = ("ewma", "means")

    def __init__(self, alpha: float, steps: int) -> None:
        self.ewma = Ewma(alpha)
        self.means: deque[float] = deque(maxlen=steps)

    def add(self, value: float, _step: int) -> None:
        self.means.append(self.ewma.add(value))

    def resume(self) -> None:
        self.means.clear()

    def snapshot(self) -> list[float]:
        return self.ewma.snapshot()

    def restore(self, saved: list[float]) -> None:
        self.ewma.restore(saved)

    def value(self) -> float | None:
        """The largest of them, or ``None`` before the window is full."""
        return max(self.means) if len(self.means) == self.means.maxlen else None


class Trend(Estimator):
    """How far a signal is below its best."""

    __slots__ = ("best", "drawdowns", "means")

    def __init__(self) -> None:
        self.means = {alpha: Ewma(float(alpha)) for alpha in TREND_WINDOWS}
        self.best: float | None = None
        self.drawdowns = {alpha: deque[float](maxlen=steps) for alpha, steps in TREND_WINDOWS.items()}

    def add(self, value: float, _step: int) -> None:
        for ewma in self.means.values():
            ewma.add(value)
        usual = self.means["0.1"]
        if usual.count < BEST_FROM:
            return
        self.best = usual.mean if self.best is None else max(self.best, usual.mean)
        for alpha, ewma in self.means.items():
            self.drawdowns[alpha].append(self.best - ewma.mean)

    def resume(self) -> None:
        for window in self.drawdowns.values():
            window.clear()

    def snapshot(self) -> list[Any]:
        return [{alpha: ewma.snapshot() for alpha, ewma in self.means.items()}, self.best]

    def restore(self, saved: list[Any]) -> None:
        for alpha, state in saved[0].items():
            self.means[alpha].restore(state)
        self.best = saved[1]

    def ewma(self, alpha: str) -> float | None:
        """The mean, or ``None`` before the first value."""
        ewma = self.means[alpha]
        return ewma.mean if ewma.count else None

    def drawdown(self, alpha: str) -> float | None:
        """Best minus mean, or ``None`` before there is a best."""
        return None if self.best is None else self.best - self.means[alpha].mean

    def drawdown_min(self, alpha: str) -> float | None:
        """Smallest recent drawdown, or ``None`` before the window is full."""
        window = self.drawdowns[alpha]
        return min(window) if len(window) == window.maxlen else None


class Patience(Estimator):
    """For how long the slow mean has not beaten its best."""

    __slots__ = ("best", "best_step", "noise", "records", "slow", "steps")

    def __init__(self, noise: Noise) -> None:
        self.noise = noise
        self.slow = Ewma(0.05)
        self.best: float | None = None
        self.best_step = self.steps = self.records = 0

    def add(self, value: float, step: int) -> None:
        mean = self.slow.add(value)
        if self.slow.count < PATIENCE_FROM:
            return
        if self.best is None or mean > self.best + PATIENCE_NOISES * (self.noise.value() or 0.0):
            self.best, self.best_step, self.records = mean, step, 0
        else:
            self.records += 1
        self.steps = step - self.best_step

    def snapshot(self) -> list[Any]:
        return [self.slow.snapshot(), self.best, self.best_step, self.steps, self.records]

    def restore(self, saved: list[Any]) -> None:
        self.slow.restore(saved[0])
        self.best, self.best_step, self.steps, self.records = saved[1:]

    def since_best(self, count: str) -> float | None:
        """``steps`` or ``records`` since the best, or ``None`` before there is one."""
        return None if self.best is None else float(getattr(self, count))
