"""Axes of charts: round ticks, and numbers as people write them."""

from __future__ import annotations

import math

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((2**40, " TiB"), (2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"))


def values(low: float, high: float, unit: str, about: int) -> list[float]:
    """Return values that are round in the unit in which they are written."""
    largest = max(abs(low), abs(high))
    size = next((size for size, _ in _BINARY if largest >= size), 1) if unit == "bytes" else 1
    return [tick * size for tick in ticks(low / size, high / size, about)]


def ticks(low: float, high: float, about: int) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten: this number between two, or up to twice that."""
    widest = max((high - low) / about * (1 + 1e-9), 1e-300)
    power = 10.0 ** math.floor(math.log10(widest))
    step = next(factor * power for factor in (5, 2, 1) if factor * power <= widest)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # 3 * 0.1 is not 0.3
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def steps(first: int, last: int, about: int) -> list[int]:
    """Return round training steps between two, likewise; all of them if they are few."""
    if last - first < 2 * about:
        return list(range(first, last + 1))
    return [round(tick) for tick in ticks(first, last, about)]


def written(value: float, unit: str = "short") -> str:
    """Return a number in four digits, with Grafana's unit of this name."""
    if unit == "percentunit":
        return f"{100 * value:.4g} %"
    size, after = 1.0, " s" if unit == "s" else ""
    if unit == "bytes":
        size, after = next((each for each in _BINARY if abs(value) >= each[0]), (1.0, " B"))
    elif 10_000 <= abs(value) < 1e15:
        size, prefix = next(each for each in _PREFIXES if abs(value) >= each[0])
        after = prefix + after
    return f"{value / size:.4g}{after}"
