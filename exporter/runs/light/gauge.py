"""A health as a small band: where the value is between its limits."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite
from typing import NamedTuple

from exporter.runs.history.models import Health, State

WIDTH = 100
"""In units of the picture, which the page stretches."""


class Zone(NamedTuple):
    """A part of the band, from one place to another, and what a value there is."""

    state: State
    start: int
    end: int


class Gauge(NamedTuple):
    """The parts of the band, and where the value is."""

    zones: tuple[Zone, ...]
    mark: int


def gauge(health: Health) -> Gauge | None:
    """``None`` where there is no value, or no limit to hold it against."""
    limits = sorted({limit for limit in _limits(health) if limit is not None and isfinite(limit)})
    value = health.judged
    if value is None or not isfinite(value) or not limits:
        return None
    low, high = _ends([*limits, value])

    def place(number: float) -> int:
        return round((number - low) / (high - low) * WIDTH)

    cuts = [low, *limits, high]
    zones = [Zone(_state(health, (a + b) / 2), place(a), place(b)) for a, b in pairwise(cuts)]
    return Gauge(tuple(zone for zone in zones if zone.start < zone.end), place(value))


def _limits(health: Health) -> tuple[float | None, ...]:
    return health.critical.low, health.warning.low, health.warning.high, health.critical.high


def _ends(numbers: list[float]) -> tuple[float, float]:
    """Some air on both sides; what is never negative does not get a negative end by that."""
    low, high = min(numbers), max(numbers)
    air = 0.25 * (high - low) or 0.5 * abs(high) or 1.0
    return (max(0.0, low - air) if low >= 0 else low - air), high + air


def _state(health: Health, value: float) -> State:
    if _beyond(value, health.critical.low, health.critical.high):
        return "critical"
    return "warning" if _beyond(value, health.warning.low, health.warning.high) else "ok"


def _beyond(value: float, low: float | None, high: float | None) -> bool:
    return (low is not None and value < low) or (high is not None and value > high)
