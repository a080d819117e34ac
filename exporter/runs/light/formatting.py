"""Numbers and times as people say them."""

from __future__ import annotations

import math
import time

from exporter.drawing import axis

NOTHING = "-"
"""Stands where there is no number."""

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def value(number: float | None, unit: str = "short") -> str:
    """A number in four digits, with a unit that Grafana knows by this name."""
    if number is None:
        return NOTHING
    return axis.written(number, unit) if math.isfinite(number) else _no_number(number)


def _no_number(number: float) -> str:
    return "NaN" if math.isnan(number) else f"{'-' if number < 0 else ''}Inf"


def span(seconds: float) -> str:
    """How long, in the largest unit that fits: ``12 s``, ``3 min``."""
    whole = max(0.0, seconds)
    size, unit = next((each for each in _UNITS if whole >= each[0]), _UNITS[-1])
    return f"{int(whole / size)} {unit}"


def clock(moment: float | None) -> str:
    """A time of today, or of another day with its date; in the zone of this machine."""
    if moment is None:
        return NOTHING
    try:
        then = time.localtime(moment)
    except (OverflowError, OSError, ValueError):
        return NOTHING
    today = time.strftime("%F", then) == time.strftime("%F")
    return time.strftime("%T" if today else "%F %T", then)


def zone() -> str:
    """The name of this machine's time zone."""
    return time.strftime("%Z")
