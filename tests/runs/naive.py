"""Every statistic once more, straight from its definition: plain lists, recomputed each time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from exporter.runs.stats.catalogue import Statistic


@dataclass
class History:
    """Present values of one signal: (attempt, step, value); a resume starts the next attempt."""

    values: list[tuple[int, int, float]] = field(default_factory=list)
    attempt: int = 0

    def finite(self) -> list[float]:
        return [value for _, _, value in self.values if math.isfinite(value)]

    def steps(self) -> list[int]:
        return [step for _, step, value in self.values if math.isfinite(value)]

    def this_attempt(self) -> list[float]:
        return [
            value for attempt, _, value in self.values if attempt == self.attempt and math.isfinite(value)
        ]

    def until(self, count: int) -> History:
        """The history as it was after that many finite values."""
        taken, seen = [], 0
        for entry in self.values:
            seen += math.isfinite(entry[2])
            taken.append(entry)
            if seen == count:
                break
        return History(taken, taken[-1][0])


def value(statistic: Statistic, history: History, floor: History | None = None) -> float | None:
    """The statistic after this history; ``floor`` is the history of the signal a range goes down to."""
    if statistic.name == "range_over_steps":
        return _range(statistic, history, floor or history)
    if statistic.name in OF_WINDOW:
        recent = last(statistic, history.this_attempt())
        return OF_WINDOW[statistic.name](recent) if recent else None
    return OF_HISTORY[statistic.name](statistic, history)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def capped_mean(values: list[float]) -> float:
    """The mean of which no value counts for more than four times, found by taking it again and again."""
    found, before = mean(values), math.inf
    while found < before:
        before, found = found, mean([min(value, 4 * found) for value in values])
    return found


def level(values: list[float]) -> float | None:
    others = [abs(value) for value in values if value != 0]
    return capped_mean(others) if len(others) >= 10 else None


def spread(values: list[float]) -> float | None:
    others = [abs(value) for value in values if value != 0]
    differences = [abs(b - a) for a, b in pairwise(others)]
    return math.sqrt(math.pi) / 2 * capped_mean(differences) if len(others) >= 10 else None


OF_WINDOW: dict[str, Callable[[list[float]], float | None]] = {
    "min_over_steps": min,
    "max_over_steps": max,
    "mean_over_steps": mean,
    "median_over_steps": median,
    "level_over_steps": level,
    "spread_over_steps": spread,
}

OF_HISTORY: dict[str, Callable[[Statistic, History], float | None]] = {
    "nonfinite_streak_steps": lambda _, history: _streak(history) if history.values else None,
    "start": lambda _, history: median(history.finite()[:5]) if len(history.finite()) >= 5 else None,
    "peak": lambda _, history: max(means(0.05, history.finite()), default=None),
    "noise": lambda _, history: noise(history),
    "lowest_level": lambda _, history: min(_levels(history), default=None),
    "ewma": lambda statistic, history: _newest(means(_alpha(statistic), history.finite())),
    "best": lambda _, history: max(means(0.1, history.finite())[2:], default=None),
    "drawdown": lambda statistic, history: _newest(drawdowns(statistic, history.finite())),
    "confirmed_best": lambda _, history: confirmed_best(history),
    "gain": lambda _, history: _gain(history.finite()),
    "ewma_max_over_steps": lambda statistic, history: max(
        last(statistic, _own(history, means(_alpha(statistic), history.finite()))), default=None
    ),
    "drawdown_min_over_steps": lambda statistic, history: min(
        last(statistic, _own(history, drawdowns(statistic, history.finite()))), default=None
    ),
    "steps_since_best": lambda _, history: _since_best(history, history.steps()),
}


def last(statistic: Statistic, values: list[float]) -> list[float]:
    """The window, or nothing while it holds too few values."""
    needed = statistic.at_least or statistic.steps or 0
    window = values[-(statistic.steps or 1) :]
    return window if len(window) >= needed else []


def _own(history: History, values: list[float]) -> list[float]:
    """Those that came in this attempt."""
    count = len(history.this_attempt())
    return values[-count:] if count else []


def _range(statistic: Statistic, history: History, floor: History) -> float | None:
    highs, lows = last(statistic, history.this_attempt()), last(statistic, floor.this_attempt())
    return max(highs) - min(lows) if highs and lows else None


def _newest(values: list[float]) -> float | None:
    return values[-1] if values else None


def _alpha(statistic: Statistic) -> float:
    return float(statistic.alpha or 0)


def means(alpha: float, values: list[float]) -> list[float]:
    """The warm-started mean after each value."""
    return [_mean(alpha, values[: count + 1]) for count in range(len(values))]


def _mean(alpha: float, values: list[float]) -> float:
    found = values[0]
    for count, x in enumerate(values[1:], start=2):
        found += max(alpha, 1 / count) * (x - found)
    return found


def drawdowns(statistic: Statistic, values: list[float]) -> list[float]:
    """Best minus mean after each value from the 3rd on."""
    slow = means(0.1, values)
    own = means(_alpha(statistic), values)
    return [max(slow[2 : count + 1]) - own[count] for count in range(2, len(values))]


def _pairs(history: History) -> list[tuple[float, float]]:
    """Finite values with the one before, where both are of one attempt."""
    entries = [(attempt, x) for attempt, _, x in history.values if math.isfinite(x)]
    return [(a, b) for (first, a), (second, b) in pairwise(entries) if first == second]


def confirmed_best(history: History) -> float | None:
    return max(map(min, _pairs(history)), default=None)


def _gain(values: list[float]) -> float | None:
    return means(0.1, values)[-1] - median(values[:5]) if len(values) >= 5 else None


def noise(history: History) -> float | None:
    differences = [abs(b - a) for a, b in _pairs(history)][-64:]
    if len(differences) < 6:
        return None
    usual = capped_mean(differences) if median(differences) else mean(differences)
    return math.sqrt(math.pi) / 2 * usual


def _levels(history: History) -> list[float]:
    """The level of 64 values after each value, windows being empty at the beginning of an attempt."""
    entries = [(attempt, x) for attempt, _, x in history.values if math.isfinite(x)]
    attempts = {attempt for attempt, _ in entries}
    runs = [[x for each, x in entries if each == attempt] for attempt in attempts]
    windows = [run[max(0, end - 64) : end] for run in runs for end in range(20, len(run) + 1)]
    return [found for window in windows if (found := level(window)) is not None]


def _streak(history: History) -> float:
    own = [x for attempt, _, x in history.values if attempt == history.attempt]
    return float(next((i for i, x in enumerate(reversed(own)) if math.isfinite(x)), len(own)))


def _since_best(history: History, counts: list[int]) -> float | None:
    best = _bests(history)
    return float(counts[-1] - counts[best[-1]]) if best else None


def _bests(history: History) -> list[int]:
    """Which finite values were bests of the slow mean, by more than its own spread."""
    found: list[int] = []
    slow = means(0.05, history.finite())
    for index in range(4, len(slow)):
        spread = 0.16 * (noise(history.until(index + 1)) or 0.0)
        if not found or slow[index] > slow[found[-1]] + spread:
            found.append(index)
    return found
