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
- ``noise``: 0.886 x capped mean of |x_t - x_{t-1}| over the last 64 differences, from the 6th on. For
  independent normal noise that is its standard deviation (E|d| = 2 sd / sqrt(pi)).
- ``start``: median of the first 5 values, fixed from then on.
- ``peak``: running maximum of ewma(0.05) from the 1st value.
- ``lowest_level``: running minimum of ``level_over_steps`` over 64, from the 20th value on.
- ``steps_since_best``: since ewma(0.05) last beat its own best by more than 0.16 noise (the standard
  deviation of that mean), from the 5th value, by step number.
- ``nonfinite_streak_steps``: records in a row in which the value was present and not finite; from
  the first value on.

Resume (the step counter went back): windows are cleared; means, both bests, peak, start and noise
stay.
Mark (the operator re-baselines the run): all of them restart with the next step.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean, median
from typing import Any

from exporter.runs.stats.catalogue import STATISTICS, ZERO_MEANS_NOT_MEASURED, Hold, Statistic

WINDOW = 64
FINITE_BELOW = 1e300  # Beyond that the sum of a window overflows: as bad as Inf
START_VALUES = 5
PER_DIFFERENCE = math.sqrt(math.pi) / 2
SMOOTH, SLOW = "0.1", "0.05"
"""Weights of a new value: in the mean that people see beside a noisy curve, in that of peak and patience."""
MOST = 4  # how many times the mean one value may count for: a quarter of the values may be spikes
LEAST_VALUES = 10
_WEIGHTS: dict[str, float] = {}  # by the text of alpha, of every mean that some signal has
NOISE_FROM, BEST_FROM, PATIENCE_FROM, LEVEL_FROM = 6, 3, 5, 20
PATIENCE_NOISES = 0.16
_NONE = array("d")  # the values of all signals that have none


class Held:
    """The extreme of the last ``seconds``, any monotonic clock, in a queue where each value enters once."""

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


def level(values: list[float]) -> float | None:
    """Return the capped mean of the values that are not 0, or ``None`` for fewer than 10 of these.

    A plain mean holds a spike until it leaves the window, and what comes after it looks small. A median
    drops to nothing when most batches have next to no gradient. The capped mean stays with both.
    """
    found = [abs(value) for value in values if value]
    return _capped_mean(found) if len(found) >= LEAST_VALUES else None


def spread(values: list[float]) -> float | None:
    """Return how far neighbours among the values that are not 0 lie apart, as a standard deviation.

    ``None`` for fewer than 10 of these. A large difference counts like a large value of ``level``.
    """
    found = [abs(value) for value in values if value]
    if len(found) < LEAST_VALUES:
        return None
    return PER_DIFFERENCE * _capped_mean([abs(value - before) for before, value in pairwise(found)])


def noise(differences: list[float]) -> float:
    """Return the standard deviation that values with these absolute differences have, were they normal.

    An outlier must not hide what comes after it, so each counts for ``MOST`` times the mean at most. Where
    most values repeat the one before, as a reward of 0, the few differences are the noise, and count in full.
    """
    return PER_DIFFERENCE * (_capped_mean(differences) if median(differences) else fmean(differences))


def _capped_mean(values: list[float]) -> float:
    """The largest mean of values, none below 0, when each counts for ``MOST`` times it at most."""
    if max(values) <= MOST * (mean := fmean(values)):
        return mean
    rising = sorted(values)
    sums = list(accumulate(rising))
    count = len(rising)
    means = ((rising[-1 - capped], sums[-1 - capped] / (count - MOST * capped)) for capped in range(count))
    return next(mean for largest, mean in means if largest <= MOST * mean)


Read = Callable[[], float | None]
Function = Callable[[list[float]], float | None]  # of the values of a window; ``None`` where they do not tell
OVER_STEPS: dict[str, Function] = {
    "min_over_steps": min,
    "max_over_steps": max,
    "mean_over_steps": fmean,
    "median_over_steps": median,
    "level_over_steps": level,
    "spread_over_steps": spread,
}
_RECENT = {"ewma_max_over_steps": max, "drawdown_min_over_steps": min}
"""Statistics over the last values of a mean or a drawdown."""
_HIGHEST_MEANS = (("peak", SLOW, 1), ("best", SMOOTH, BEST_FROM))
"""Running maxima of means, each from this value on."""
_SMOOTHED = {"best", "gain", "drawdown", "drawdown_min_over_steps", "steps_since_best"}


class SignalStatistics:
    """All listed statistics of one signal.

    ``readers`` pairs each of them with a function that reads its value now (``None`` while it does not
    exist). ``floor`` is the signal that ``range_over_steps`` goes down to. Beside the window of values it
    remembers what the listed statistics need, and until the first value nothing: a run has a dozen of the
    sixty signals, and the others would weigh as much.
    """

    __slots__ = (
        *("_adders", "_count", "_differences", "_first", "_highest", "_last", "_means", "_readers"),
        *("_recent", "_since", "_wanted", "begun", "floor", "measured"),
        *("nonfinite", "seen", "streak", "values"),
    )

    def __init__(self, wanted: Iterable[Statistic], floor: SignalStatistics | None = None) -> None:
        self._wanted = tuple(wanted)
        self.floor = floor or self
        self.begun = self.seen = self.measured = False
        self.streak = self.nonfinite = 0
        self.values = _NONE

    def _begin(self) -> None:
        """Prepare what the listed statistics need."""
        self.begun, self.values = True, array("d")
        self._last: float | None = None
        self._count, self._since = 0, [0, 0]  # the step of the best; steps since
        self._first, self._differences, self._highest = list[float](), list[float](), dict[str, float]()
        names = {each.name for each in self._wanted}
        smooth, patient = not names.isdisjoint(_SMOOTHED), "steps_since_best" in names
        alphas = {each.alpha for each in self._wanted if each.alpha}
        alphas |= ({SMOOTH} if smooth else set()) | ({SLOW} if patient or "peak" in names else set())
        self._means = dict.fromkeys(sorted(alphas), 0.0)
        _WEIGHTS.update((alpha, float(alpha)) for alpha in alphas)
        self._recent = [
            (each.alpha or SMOOTH, each.name, deque[float](maxlen=each.steps))
            for each in self._wanted
            if each.name in _RECENT
        ]
        needed = {
            self._add_to_means: bool(alphas),
            self._add_to_start: not names.isdisjoint({"start", "gain"}),
            self._add_difference: patient or "noise" in names,
            self._add_pair: "confirmed_best" in names,
            self._add_to_highest: smooth or "peak" in names,
            self._add_to_recent: bool(self._recent),
            self._add_level: "lowest_level" in names,
            self._add_to_patience: patient,
        }
        self._adders = [add for add, wanted in needed.items() if wanted]
        self._readers = [(each, self._reader(each)) for each in self._wanted]

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
        self._last = value

    def _add_to_means(self, value: float, _step: int) -> None:
        self._count += 1
        share = 1 / self._count
        for alpha, mean in self._means.items():
            weight = _WEIGHTS[alpha]
            self._means[alpha] = mean + (weight if weight > share else share) * (value - mean)

    def _add_to_start(self, value: float, _step: int) -> None:
        if len(self._first) < START_VALUES:
            self._first.append(value)

    def _add_difference(self, value: float, _step: int) -> None:
        if self._last is not None:
            self._differences.append(abs(value - self._last))
            if len(self._differences) > WINDOW:
                del self._differences[0]

    def _add_pair(self, value: float, _step: int) -> None:
        if self._last is not None:
            both = min(self._last, value)
            self._highest["confirmed_best"] = max(self._highest.get("confirmed_best", both), both)

    def _add_to_highest(self, _value: float, _step: int) -> None:
        for name, alpha, first in _HIGHEST_MEANS:
            mean = self._means.get(alpha)
            if mean is not None and self._count >= first and mean > self._highest.get(name, -math.inf):
                self._highest[name] = mean

    def _add_level(self, _value: float, _step: int) -> None:
        if (usual := self.over(level, WINDOW, LEVEL_FROM)) is not None:
            self._highest["lowest_level"] = min(self._highest.get("lowest_level", usual), usual)

    def _add_to_recent(self, _value: float, _step: int) -> None:
        best = self._highest.get("best")
        for alpha, name, window in self._recent:
            if name == "ewma_max_over_steps":
                window.append(self._means[alpha])
            elif best is not None:
                window.append(best - self._means[alpha])

    def _add_to_patience(self, _value: float, step: int) -> None:
        """Count since when the slow mean has not beaten its best."""
        if self._count < PATIENCE_FROM:
            return
        mean = self._means[SLOW]
        if mean > self._highest.get("slow", -math.inf) + PATIENCE_NOISES * (self._noise() or 0.0):
            self._highest["slow"] = mean
            self._since[0] = step
        self._since[1] = step - self._since[0]

    def resume(self) -> None:
        """Clear the windows: the next value belongs to another attempt."""
        self.streak = 0
        if self.begun:
            self.values, self._last = array("d"), None
            for _, _, window in self._recent:
                window.clear()

    def snapshot(self) -> dict[str, Any]:
        """What a resume keeps, as plain JSON values."""
        kept: dict[str, Any] = {"nonfinite": self.nonfinite, "seen": self.seen, "measured": self.measured}
        if self.begun:
            kept |= {"count": self._count, "means": dict(self._means), "highest": dict(self._highest)}
            kept |= {"first": [*self._first], "differences": [*self._differences], "since": [*self._since]}
        return kept

    def restore(self, saved: dict[str, Any]) -> None:
        """Start from what ``snapshot`` returned; windows stay empty."""
        self.nonfinite, self.seen, self.measured = saved["nonfinite"], saved["seen"], saved["measured"]
        if self.seen:
            if not self.begun:
                self._begin()
            self._count = saved["count"]
            self._means.update(saved["means"])
            self._highest.update(saved["highest"])
            self._first[:], self._since[:] = saved["first"], saved["since"]
            self._differences.extend(saved["differences"])

    @property
    def readers(self) -> Sequence[tuple[Statistic, Read]]:
        """Each statistic, and what reads it."""
        if not self.begun:
            self._begin()
        return self._readers

    def mean(self) -> float | None:
        """Return the smoothed value, if the signal has one and has values."""
        return self._means.get(SMOOTH) if self.begun and self._count else None

    def _noise(self) -> float | None:
        return noise(self._differences) if len(self._differences) >= NOISE_FROM else None

    def _start(self) -> float | None:
        return median(self._first) if len(self._first) == START_VALUES else None

    def _reader(self, statistic: Statistic) -> Read:
        name, alpha, steps = statistic.name, statistic.alpha or SMOOTH, statistic.steps or WINDOW
        needed, highest, means = statistic.at_least or steps, self._highest, self._means
        if name in OVER_STEPS:
            function = OVER_STEPS[name]
            return lambda: self.over(function, steps, needed)
        if name in _RECENT:
            window = next(window for of, known, window in self._recent if (of, known) == (alpha, name))
            return lambda: _RECENT[name](window) if len(window) == steps else None
        readers: dict[str, Read] = {
            "range_over_steps": lambda: _difference(
                self.over(max, steps, needed), self.floor.over(min, steps, needed)
            ),
            "nonfinite_streak_steps": lambda: float(self.streak) if self.seen else None,
            "ewma": lambda: means[alpha] if self._count else None,
            "drawdown": lambda: highest["best"] - means[alpha] if "best" in highest else None,
            "gain": lambda: None if (start := self._start()) is None else means[SMOOTH] - start,
            "start": self._start,
            "noise": self._noise,
            "steps_since_best": lambda: float(self._since[1]) if "slow" in highest else None,
        }
        return readers.get(name) or (lambda: highest.get(name))

    def over(self, function: Function, steps: int, needed: int) -> float | None:
        """A function of the last ``steps`` values, or ``None`` while there are fewer than ``needed``."""
        return function(self.values[-steps:].tolist()) if len(self.values) >= needed else None


def _difference(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


def is_measured(signal: str, statistics: Mapping[str, SignalStatistics]) -> bool:
    """A constant 0 of some signals means that the trainer does not measure them."""
    return signal not in ZERO_MEANS_NOT_MEASURED or statistics[signal].measured


def rebaselined(
    old: Mapping[str, SignalStatistics], own: Iterable[Statistic] = ()
) -> dict[str, SignalStatistics]:
    """Fresh statistics that keep the count of nonfinite values: a counter never falls."""
    fresh = by_signal(own)
    for signal, statistics in fresh.items():
        statistics.nonfinite = old[signal].nonfinite
    return fresh


def by_signal(own: Iterable[Statistic] = ()) -> dict[str, SignalStatistics]:
    """Fresh statistics of every signal that has any; ``own`` are more than the listed ones."""
    wanted: dict[str, list[Statistic]] = {}
    for statistic in (*STATISTICS, *own):
        wanted.setdefault(statistic.signal, []).append(statistic)
    floor = SignalStatistics(wanted.pop("reward_min", ()))
    made = {"reward_min": floor}
    for signal, listed in wanted.items():
        made[signal] = SignalStatistics(listed, floor if signal == "reward_max" else None)
    return made
