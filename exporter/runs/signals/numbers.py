"""Numbers as trainers write them."""

from __future__ import annotations

import math
from typing import Any


def number(raw: Any) -> float | None:
    """Read one logged value.

    Numbers pass as they are. ``None`` (JSON ``null``) is NaN: that is what JSON writers make of
    NaN and Inf. Text may be wrapped by numpy's repr (``np.float64(0.5)``) or be followed by words
    that another process glued on. Anything else is not a number: ``None``.
    """
    kind = type(raw)
    if kind is float:
        return raw  # type: ignore[no-any-return]
    if kind is int:
        return float(raw)
    if kind is str:
        return _from_text(raw)
    return math.nan if raw is None else None


def _from_text(text: str) -> float | None:
    if text.endswith(")"):  # an exception costs more than the number: verl wraps most of its values
        return _from_wrapped(text)
    try:
        return float(text)
    except ValueError:
        return _from_wrapped(text)


def _from_wrapped(text: str) -> float | None:
    inner = text.partition("(")[2].partition(")")[0] or text.partition(" ")[0]
    try:
        return float(inner)
    except ValueError:
        return None
