"""What a source reads out of a log: records, their numbers, steps and times, and what is said of the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from exporter.runs.signals.key import normal


@dataclass(slots=True)
class Record:
    """One logged step: the trainer's own keys with what it wrote, numbers or text that holds one.

    ``time`` in seconds since the epoch, if it has one. Records of one step that come from different parts
    of a trainer have different ``stream`` names; ``run`` names one of several runs of one file or server.
    """

    step: int
    values: Mapping[str, Any]
    time: float | None = None
    stream: str = ""
    run: str = ""


@dataclass(slots=True, frozen=True)
class TotalSteps:
    """The log says how many steps the trainer will make; under which key, where several may."""

    steps: int
    run: str = ""
    key: str = field(default="", compare=False)


@dataclass(slots=True, frozen=True)
class ResponseLimit:
    """The log says after how many tokens a response is cut."""

    tokens: int
    run: str = ""


@dataclass(slots=True, frozen=True)
class Ended:
    """The log says that the run ended, maybe why; a traceback, which may be caught, is not ``certain``."""

    state: str
    certain: bool = True
    run: str = ""
    cause: str = ""


@dataclass(slots=True, frozen=True)
class Servers:
    """The log says where the run's rollout servers listen: addresses as written, and the path of metrics."""

    addresses: tuple[str, ...]
    path: str = "/metrics"
    run: str = ""


Event = Record | TotalSteps | ResponseLimit | Ended | Servers


def number(raw: Any) -> float | None:
    """Read one logged value; ``None`` is not a number.

    JSON's ``null`` is NaN: that is what JSON writers make of NaN and Inf. Text may be wrapped by numpy's
    repr (``np.float64(0.5)``) or be followed by words that another process glued on.
    """
    kind = type(raw)
    if kind is float:
        return raw  # type: ignore[no-any-return]
    if kind is int:
        return float(raw)
    if kind is not str:
        return math.nan if raw is None else None
    try:  # verl wraps most of its values
        return float(raw[raw.index("(") + 1 : -1] if raw[-1:] == ")" else raw)
    except ValueError:
        pass
    try:
        return float(raw.partition("(")[2].partition(")")[0] or raw.partition(" ")[0])
    except ValueError:
        return None


_STEPS = (
    "step",
    # where these are logged beside it, global_step counts samples or steps of an environment
    *("update", "updates", "num_updates", "update_step", "update_index", "rl_update_index"),
    *("global_step", "training_global_step", "trainer_global_step", "train_global_step"),
    *("training_step", "train_step", "iteration", "iter", "it", "progress_step", "progress_batch"),
    "current_steps",
)
"""Normal forms of keys that count training steps, best first."""
WANDB_STEPS = frozenset({"_step", "_Step"})
"""W&B counts its own calls; that is the step only where nothing else is."""
PROGRESS = "global_step/max_steps"  # ms-swift's step: ``5/3766``
STEP_LIMIT = 10**15  # no step number is that high; digits that several writers mixed up are
_TIMES = ("timestamp", "wall_time", "logged_at", "ts")
AXES = frozenset({*_STEPS, *_TIMES, "runtime", "progress_done_frac"})
"""Normal forms of all keys that say when; W&B's ``_runtime`` is in seconds since the start."""


def step_key(keys: Iterable[str]) -> str | None:
    """The key that holds the step, if any."""
    names = {normal(key): key for key in keys if key not in WANDB_STEPS}
    best = next((names[name] for name in _STEPS if name in names), None)
    return best or next((key for key in keys if key in WANDB_STEPS), None)


def time_key(keys: Iterable[str]) -> str | None:
    """The key that holds the time, if any."""
    return next((key for key in keys if normal(key) in _TIMES), None)


def is_step(raw: Any) -> bool:
    """Whether this value of a JSON document is a step number."""
    return type(raw) is int and 0 <= raw < STEP_LIMIT


def step(raw: Any) -> int:
    """Read a step number. Raises ValueError: it is not one."""
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
    """Seconds since the epoch of a column that is only thought to hold a time: from 2001 on, maybe in ms."""
    value = seconds(stamp)
    if value is not None and value >= 1e12:
        value /= 1000
    return value if value is not None and 1e9 <= value < 1e10 else None
