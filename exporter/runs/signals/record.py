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
    """One logged step.

    ``values`` maps the trainer's own keys to what it wrote (numbers, or text that holds one).
    ``time`` is the record's own time in seconds since the epoch, if it has one. Records of one
    step that come from different parts of a trainer carry different ``stream`` names. ``run`` names
    one of several runs that one file or server reports; it is empty where there is only one.
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


STEP_LIMIT = 10**15  # no step number is that high; digits that several writers mixed up are


def is_step(raw: Any) -> bool:
    """Whether this value of a JSON document is a step number."""
    return type(raw) is int and 0 <= raw < STEP_LIMIT


Event = Record | TotalSteps | ResponseLimit | Ended | Servers


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
_SINCE_START = "runtime"  # W&B's `_runtime`: seconds since the start
AXES = frozenset({*_STEPS, *_TIMES, _SINCE_START, "progress_done_frac"})  # Normal forms of all of them
_SENSIBLE = (1e9, 1e10)  # seconds since the epoch from 2001 on; what is thousandfold is in milliseconds


PROGRESS = "global_step/max_steps"  # ms-swift's step: ``5/3766``


def step_key(keys: Iterable[str]) -> str | None:
    """The key that holds the step, if any."""
    names = {normal(key): key for key in keys if key not in WANDB_STEPS}
    best = next((names[name] for name in _STEPS if name in names), None)
    return best or next((key for key in keys if key in WANDB_STEPS), None)


def time_key(keys: Iterable[str]) -> str | None:
    """The key that holds the time, if any."""
    return next((key for key in keys if normal(key) in _TIMES), None)


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
    """Seconds since the epoch of a column that is only thought to hold a time."""
    value = seconds(stamp)
    if value is not None and value >= 1000 * _SENSIBLE[0]:
        value /= 1000
    return value if value is not None and _SENSIBLE[0] <= value < _SENSIBLE[1] else None
