"""Lines as trainers write them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.runs.formats.prefixes import Prefixes


def console(step: int, values: Mapping[str, Any], prefix: str = "") -> str:
    """A line of verl's console logger, with its line end."""
    fields = [f"step:{step}", *(f"{key}:{value}" for key, value in values.items())]
    return f"{prefix}{' - '.join(fields)}\n"


def verl_json(step: int, values: Mapping[str, Any]) -> str:
    """A line of verl's file logger, with its line end: what is not finite is null."""
    data = {key: value if _finite(value) else None for key, value in values.items()}
    return json.dumps({"step": step, "data": data}, separators=(",", ":")) + "\n"


def scoped(step: int, values: Mapping[str, Any], scope: str = "rollout", timestamp: Any = None) -> str:
    """A scoped JSON line, with its line end."""
    stamp = {} if timestamp is None else {"timestamp": timestamp}
    return json.dumps({**stamp, "scope": scope, "step": step, **values}) + "\n"


def measured(step: int, **more: Any) -> dict[str, Any]:
    """What a healthy verl run might log at a step; keyword arguments name signals that differ."""
    usual = {
        "reward": 0.3 + step / 1000 + step % 7 / 100,
        "kl": 0.01 + step % 5 / 1000,
        "entropy": 0.5 - step / 5000 + step % 3 / 100,
        "response_length": 300.0 + step % 11,
        "grad_norm": 1.0 + step % 4 / 10,
        **more,
    }
    return {KEYS[signal]: value for signal, value in usual.items() if value is not None}


def json_steps(first: int, last: int, **more: float) -> list[str]:
    """Lines of verl's file logger for these steps."""
    return [verl_json(step, measured(step, **more)) for step in range(first, last + 1)]


KEYS = {
    "reward": "critic/score/mean",
    "reward_max": "critic/score/max",
    "reward_min": "critic/score/min",
    "kl": "actor/kl_loss",
    "policy_kl": "actor/ppo_kl",
    "entropy": "actor/entropy",
    "policy_loss": "actor/pg_loss",
    "response_length": "response_length/mean",
    "truncated_ratio": "response_length/clip_ratio",
    "grad_norm": "actor/grad_norm",
    "step_seconds": "perf/time_per_step",
}


def bare(*lines: str | bytes) -> list[bytes]:
    """Lines as the reader of a log hands them to a source: without what stands before their text."""
    return Prefixes().strip([line if isinstance(line, bytes) else line.encode() for line in lines])


def append(path: Path, *lines: str) -> None:
    """Write the lines at the end of a file, as a trainer does: open, append, close."""
    with path.open("a") as file:
        file.writelines(lines)


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
