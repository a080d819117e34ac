"""Keys that say when something was logged, not what."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from exporter.runs.signals.keys.key import normal
from exporter.runs.signals.numbers import number
from exporter.runs.signals.record import STEP_LIMIT

_STEPS = (
    "step",
    # where these are logged beside it, global_step counts samples or steps of an environment
    "update",
    "updates",
    "num_updates",
    "update_step",
    "update_index",
    "rl_update_index",
    "global_step",
    "training_global_step",
    "trainer_global_step",
    "train_global_step",
    "training_step",
    "train_step",
    "iteration",
    "iter",
    "it",
    "progress_step",
    "progress_batch",
    "current_steps",
)
"""Normal forms of keys that count training steps, best first."""

WANDB_STEPS = frozenset({"_step", "_Step"})
"""W&B counts its own calls; that is the step only where nothing else is."""

_TIMES = ("timestamp", "wall_time", "logged_at", "ts")
_SINCE_START = "runtime"
"""W&B's `_runtime`: seconds since the start."""

AXES = frozenset({*_STEPS, *_TIMES, _SINCE_START, "progress_done_frac"})
"""Normal forms of all of them."""

_SENSIBLE = (1e9, 1e10)
"""Seconds since the epoch from 2001 on; what is thousandfold is in milliseconds."""


PROGRESS = "global_step/max_steps"
"""ms-swift's step: ``5/3766``."""


def step_key(keys: Iterable[str]) -> str | None:
    """The key that holds the step, if any."""
    names = {normal(key): key for key in keys if key not in WANDB_STEPS}
    best = next((names[name] for name in _STEPS if name in names), None)
    return best or next((key for key in keys if key in WANDB_STEPS), None)


def time_key(keys: Iterable[str]) -> str | None:
    """The key that holds the time, if any."""
    return next((key for key in keys if normal(key) in _TIMES), None)


def step(raw: Any) -> int:
    """Read a step number.

    Raises:
        ValueError: it is not one.
    """
    value = number(raw)
    if value is None or not value.is_integer() or not 0 <= value < STEP_LIMIT:
        raise ValueError("no step number")
    return int(value)


def seconds(stamp: Any) -> float | None:
    """Seconds since the epoch, from a number or an ISO 8601 text."""
    value = number(stamp)
    if value is not None:
        return value if math.isfinite(value) else None
    try:
        return datetime.fromisoformat(str(stamp).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None


def sensible_seconds(stamp: Any) -> float | None:
    """Seconds since the epoch of a column that is only thought to hold a time."""
    value = seconds(stamp)
    if value is not None and value >= 1000 * _SENSIBLE[0]:
        value /= 1000
    return value if value is not None and _SENSIBLE[0] <= value < _SENSIBLE[1] else None
