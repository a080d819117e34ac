"""Statistics of one signal over its logged steps.

All are online and hold at most 64 values each. A statistic moves only when the record holds a
finite value of the signal; in between it keeps its value. Window statistics do not exist before
their window is full, unless the contract gives a smaller ``at_least``.

Definitions (x_t is the t-th present value of the signal, t = 1, 2, ...):

- ``min/max/mean/median_over_steps``: over the last N values.
- ``level_over_steps``: mean of those of the last N values that are not 0, where none counts for more
  than 4 times that mean; from 10 such values on.
- ``spread_over_steps``: 0.886 x the mean difference between neighbours among them, likewise.
- ``range_over_steps``: max - min of the last N values; of ``reward_max`` the smallest
  ``reward_min`` of the last N values takes the place of the min, so that it spans all samples.
- ``ewma``: m_1 = x_1, m_t = m_{t-1} + a_t (x_t - m_{t-1}) with a_t = max(alpha, 1/t): a plain mean
  until 1/alpha values, so that the first value does not rule the next twenty.
- ``ewma_max_over_steps``: largest of the last N values of that mean.
- ``best``: running maximum of ewma(0.1), counted from the 3rd value.
- ``confirmed_best``: running maximum of min(x_t, x_{t-1}), both of one attempt.
- ``gain``: ewma(0.1) - start, from the 5th value.
- ``drawdown``: best - ewma(alpha); ``drawdown_min_over_steps``: its smallest of the last N.
- ``noise``: 0.886 x mean |x_t - x_{t-1}| over the last 64 differences, from the 6th on. For
  independent normal noise that is its standard deviation (E|d| = 2 sd / sqrt(pi)).
- ``start``: median of the first 5 values, fixed from then on.
- ``peak``: running maximum of ewma(0.05) from the 1st value.
- ``steps_since_best``, ``records_since_best``: since ewma(0.05) last beat its own best by more
  than 0.16 noise (the standard deviation of that mean), from the 5th value; by step number, and
  in records with the signal.
- ``nonfinite_streak_steps``: records in a row in which the value was present and not finite; from
  the first value on.

Resume (the step counter went back): windows are cleared; means, both bests, peak, start and noise
stay.
Mark (the operator re-baselines the run): all of them restart with the next step.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any, TypeVar, cast

from exporter.runs.stats.catalogue import STATISTICS, ZERO_MEANS_NOT_MEASURED, Hold, Statistic
from exporter.runs.stats.estimators import (
    WINDOW,
    Confirmed,
    Estimator,
    Noise,
    Patience,
    Peak,
    RecentMeans,
    Start,
    Trend,
    level,
    spread,
)


class Held:
    """The extreme of a statistic over its present value and the records of the last ``seconds``.

    A monotonic queue: each time and value enters once and leaves once. Times in seconds, any
    monotonic clock.
    """

    __slots__ = ("_seconds", "_sign", "_window")

    def __init__(self, hold: Hold, seconds: float) -> None:
        self._seconds = seconds
        self._sign = -1.0 if hold is Hold.LOW else 1.0
        # Seldom more than two or three: a deque of none weighs 600 bytes.
        self._window: list[tuple[float, float]] = []

    def add(self, now: float, value: float) -> None:
        """Take the statistic's value after a record that arrived now."""
        self._forget(now)
        signed = self._sign * value
        while self._window and self._window[-1][1] <= signed:
            self._window.pop()
        self._window.append((now, signed))

    def value(self, now: float, present: float) -> float:
        """The extreme of ``present`` and all values that arrived in the last seconds."""
        self._forget(now)
        if not self._window:
            return present
        return self._sign * max(self._window[0][1], self._sign * present)

    def expires(self) -> float:
        """When the value that rules now is too old and the extreme may change."""
        return self._window[0][0] + self._seconds if self._window else float("inf")

    def _forget(self, now: float) -> None:
        while self._window and self._window[0][0] + self._seconds < now:
            del self._window[0]


FINITE_BELOW = 1e300
"""Beyond that the sum of a window overflows: as bad as Inf."""

Read = Callable[[], float | None]
T = TypeVar("T", bound=Estimator)

_NONE = array("d")
"""The values of all signals that have none."""

SMOOTH = "0.1"
"""The weight of a new value in the mean that people see beside a noisy curve."""

Function = Callable[[list[float]], float | None]
"""Of the values of a window; ``None`` where they do not tell."""

OVER_STEPS: dict[str, Function] = {
    "min_over_steps": min,
    "max_over_steps": max,
    "mean_over_steps": fmean,
    "median_over_steps": median,
    "level_over_steps": level,
    "spread_over_steps": spread,
}

OF_ONE_VALUE: dict[str, Callable[[], Start | Noise | Peak | Confirmed]] = {
    "start": Start,
    "noise": Noise,
    "peak": Peak,
    "confirmed_best": Confirmed,
}
"""Trackers whose value is the statistic of their name."""


class SignalStatistics:
    """All listed statistics of one signal.

    ``readers`` pairs each of them with a function that reads its value now (``None`` while it
    does not exist). ``floor`` is the signal that ``range_over_steps`` goes down to. Until the first value
    there are none: a run has a dozen of the sixty signals, and the others would weigh as much.
    """

    __slots__ = (
        "_adders",
        "_mean",
        "_readers",
        "_trackers",
        "_wanted",
        "begun",
        "floor",
        "measured",
        "nonfinite",
        "seen",
        "streak",
        "values",
    )

    def __init__(self, wanted: Iterable[Statistic], floor: SignalStatistics | None = None) -> None:
        self.values = _NONE
        self.floor = floor or self
        self.begun = False
        self.streak = 0
        self.nonfinite = 0
        self.seen = self.measured = False
        self._wanted = tuple(wanted)
        self._trackers: dict[str, Estimator] = {}
        self._readers: Sequence[tuple[Statistic, Read]] = ()
        self._mean: Read | None = None
        self._adders: Sequence[Callable[[float, int], None]] = ()

    @property
    def readers(self) -> Sequence[tuple[Statistic, Read]]:
        """Each statistic, and what reads it."""
        if not self.begun:
            self._begin()
        return self._readers

    def _begin(self) -> None:
        self.begun, self.values = True, array("d")
        self._readers = [(each, self._reader(each)) for each in self._wanted]
        means = (read for each, read in self._readers if (each.name, each.alpha) == ("ewma", SMOOTH))
        self._mean = next(means, None)
        self._adders = [tracker.add for tracker in self._trackers.values()]

    def mean(self) -> float | None:
        """Return the smoothed value, if the signal has one and has values."""
        return self._mean() if self._mean else None

    def add(self, value: float, step: int) -> None:
        """Take the value of one record; NaN and Inf move nothing but the streak."""
        if not self.begun:
            self._begin()
        self.seen = True
        if value:
            self.measured = True
        if not abs(value) < FINITE_BELOW:
            self.streak += 1
            self.nonfinite += 1
            return
        self.streak = 0
        self.values.append(value)
        if len(self.values) > WINDOW:
            del self.values[0]
        for add in self._adders:
            add(value, step)

    def resume(self) -> None:
        """Clear the windows: the next value belongs to another attempt."""
        if self.begun:
            self.values = array("d")
        self.streak = 0
        for tracker in self._trackers.values():
            tracker.resume()

    def snapshot(self) -> dict[str, Any]:
        """What a resume keeps, as plain JSON values."""
        trackers = {name: tracker.snapshot() for name, tracker in self._trackers.items()}
        flags = {"nonfinite": self.nonfinite, "seen": self.seen, "measured": self.measured}
        return {**flags, "trackers": trackers}

    def restore(self, saved: dict[str, Any]) -> None:
        """Start from what ``snapshot`` returned; windows stay empty."""
        self.nonfinite, self.seen, self.measured = saved["nonfinite"], saved["seen"], saved["measured"]
        if self.seen and not self.begun:
            self._begin()
        for name in self._trackers.keys() & saved["trackers"].keys():
            self._trackers[name].restore(saved["trackers"][name])

    def _reader(self, statistic: Statistic) -> Read:
        steps = statistic.steps or WINDOW
        needed = statistic.at_least or steps
        if statistic.name in OVER_STEPS:
            return lambda: self.over(OVER_STEPS[statistic.name], steps, needed)
        if statistic.name == "range_over_steps":
            return lambda: _difference(self.over(max, steps, needed), self.floor.over(min, steps, needed))
        if statistic.name == "nonfinite_streak_steps":
            return lambda: float(self.streak) if self.seen else None
        return self._tracked(statistic.name, statistic.alpha or "", steps)

    def over(self, function: Function, steps: int, needed: int) -> float | None:
        """A function of the last ``steps`` values, or ``None`` while there are fewer than ``needed``."""
        return function(self.values[-steps:].tolist()) if len(self.values) >= needed else None

    def _tracked(self, name: str, alpha: str, steps: int) -> Read:
        if name in OF_ONE_VALUE:
            return self._tracker(name, OF_ONE_VALUE[name]()).value
        if name == "ewma_max_over_steps":
            return self._tracker(f"means {alpha}", RecentMeans(float(alpha), steps)).value
        if name in ("steps_since_best", "records_since_best"):
            patience = self._tracker("patience", Patience(self._tracker("noise", Noise())))
            return lambda: patience.since_best(name.partition("_")[0])
        trend = self._tracker("trend", Trend())
        if name == "gain":
            start = self._tracker("start", Start())
            return lambda: _difference(trend.ewma(SMOOTH), start.value())
        readers: dict[str, Read] = {
            "best": lambda: trend.best,
            "ewma": lambda: trend.ewma(alpha),
            "drawdown": lambda: trend.drawdown(alpha),
            "drawdown_min_over_steps": lambda: trend.drawdown_min(alpha),
        }
        return readers[name]

    def _tracker(self, name: str, fresh: T) -> T:
        """The tracker of that name, by default ``fresh``."""
        return cast("T", self._trackers.setdefault(name, fresh))


def _difference(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


def is_measured(signal: str, statistics: Mapping[str, SignalStatistics]) -> bool:
    """A constant 0 of some signals means that the trainer does not measure them."""
    return signal not in ZERO_MEANS_NOT_MEASURED or statistics[signal].measured


def rebaselined(old: Mapping[str, SignalStatistics]) -> dict[str, SignalStatistics]:
    """Fresh statistics that keep the count of nonfinite values: a counter never falls."""
    fresh = by_signal()
    for signal, statistics in fresh.items():
        statistics.nonfinite = old[signal].nonfinite
    return fresh


def by_signal() -> dict[str, SignalStatistics]:
    """Fresh statistics of every signal that has any."""
    wanted: dict[str, list[Statistic]] = {}
    for statistic in STATISTICS:
        wanted.setdefault(statistic.signal, []).append(statistic)
    floor = SignalStatistics(wanted.pop("reward_min", ()))
    made = {"reward_min": floor}
    for signal, listed in wanted.items():
        made[signal] = SignalStatistics(listed, floor if signal == "reward_max" else None)
    return made
