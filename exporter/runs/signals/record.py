"""What a source reads out of a log: records, and what the log says about the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    """The log says how many steps the trainer will make."""

    steps: int
    run: str = ""


@dataclass(slots=True, frozen=True)
class ResponseLimit:
    """The log says after how many tokens a response is cut."""

    tokens: int
    run: str = ""


@dataclass(slots=True, frozen=True)
class Ended:
    """The log says that the run ended.

    A traceback or an exit code is not a certain failure (``certain=False``): trainers log those that
    they caught, and those of programs that a reward runs.
    """

    state: str
    certain: bool = True
    run: str = ""


@dataclass(slots=True, frozen=True)
class Servers:
    """The log says where the run's rollout servers listen: addresses as written, and the path of metrics."""

    addresses: tuple[str, ...]
    path: str = "/metrics"
    run: str = ""


STEP_LIMIT = 10**15
"""No step number is that high; digits that several writers mixed up are."""


def is_step(raw: Any) -> bool:
    """Whether this value of a JSON document is a step number."""
    return type(raw) is int and 0 <= raw < STEP_LIMIT


Event = Record | TotalSteps | ResponseLimit | Ended | Servers
