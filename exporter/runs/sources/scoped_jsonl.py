"""Scoped JSON lines: ``{"timestamp":..,"scope":"rollout","step":120,"reward_mean":0.5}``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exporter.runs.signals.axes import seconds
from exporter.runs.signals.record import Record, is_step
from exporter.runs.sources.flat import flattened
from exporter.runs.sources.json_lines import JsonLines, parse

ABOUT_THE_RECORD = frozenset({"timestamp", "scope", "step"})
DEEPEST = 16
"""Scopes within scopes."""


class ScopedJsonl(JsonLines):
    """Each part of the trainer (its scope) logs its own line for a step.

    A scope within others is written as text (``trainer/actor``), as a list of names, or as an
    object of objects. Keys are flat, or grouped once.
    """

    name = "scoped_jsonl"
    framework = "scoped"

    @staticmethod
    def record(line: bytes) -> Record | None:
        match parse(line):
            case {"scope": scope, "step": step} as found if is_step(step):
                names = list(_names(scope))
                if names:
                    values = {key: value for key, value in found.items() if key not in ABOUT_THE_RECORD}
                    return Record(step, flattened(values), seconds(found.get("timestamp")), "/".join(names))
        return None


def _names(scope: Any, depth: int = 0) -> Iterator[str]:
    """The names of a scope, outermost first."""
    match scope:
        case str(name):
            yield name
        case list(names) if depth < DEEPEST:
            for name in names:
                yield from _names(name, depth + 1)
        case dict(inner) if depth < DEEPEST:
            for name, below in inner.items():
                yield name
                yield from _names(below, depth + 1)
