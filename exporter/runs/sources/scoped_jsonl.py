"""Scoped JSON lines: ``{"timestamp":..,"scope":"rollout","step":120,"reward_mean":0.5}``."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

import orjson

from exporter.runs.numbers import number
from exporter.runs.record import Record, is_step
from exporter.runs.sources.json_lines import JsonLines

ABOUT_THE_RECORD = frozenset({"timestamp", "scope", "step"})


class ScopedJsonl(JsonLines):
    """Each part of the trainer (its scope) logs its own line for a step; their keys are flat."""

    name = "scoped_jsonl"
    framework = "scoped"

    @staticmethod
    def record(line: bytes) -> Record | None:
        match _parse(line):
            case {"scope": str(scope), "step": step} as found if is_step(step):
                values = {key: value for key, value in found.items() if key not in ABOUT_THE_RECORD}
                return Record(step, values, _seconds(found.get("timestamp")), scope)
        return None


def _parse(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return _parse_leniently(line)


def _parse_leniently(line: bytes) -> Any:
    """Python's ``json.dumps`` writes bare ``NaN``, which strict parsers refuse: ``null`` says the same."""
    try:
        return orjson.loads(json.dumps(json.loads(line, parse_constant=lambda _: None)))
    except (ValueError, RecursionError):
        return None


def _seconds(stamp: Any) -> float | None:
    """Seconds since the epoch, from a number or an ISO 8601 text."""
    seconds = number(stamp)
    if seconds is not None:
        return seconds if math.isfinite(seconds) else None
    try:
        return datetime.fromisoformat(str(stamp).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None
