"""ROLL's console: ``metrics_tag: {"step": 12, "metrics": {"critic/score/mean": 0.5}}``.

That is its ``stdout`` tracker. With another one, each pipeline still logs the metrics as one JSON object
every ``logging_steps`` steps; that they are of step ``system/global_step`` stands among them. Source:
``roll/utils/tracking.py`` and ``roll/pipeline`` (rlvr, agentic) of 2026-10. Steps start at 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from exporter.runs.signals.record import Ended, Event, Record, is_step, number
from exporter.runs.sources.base import Source, load_json
from exporter.runs.sources.console import ending

_TRACKED = b'metrics_tag: {"step": '
_STEP = "system/global_step"
_PLAIN = re.compile(rb'(?:^|[\]:\s])(\{(?=")[^{}]*"system/global_step": \d.*\})\s*$')
_DONE = b"pipeline complete!"


class Roll(Source):
    """ROLL's console output, of every pipeline."""

    name = "roll_console"
    framework = "roll"

    def __init__(self) -> None:
        self._tracked = False

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        return _tracked(line) is not None or _plain(line) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        if record := _tracked(line):
            self._tracked = True
            yield record
        elif not self._tracked and (record := _plain(line)):
            yield record
        elif _DONE in line:
            yield Ended("finished")
        elif ended := ending(line):
            yield ended


def _tracked(line: bytes) -> Record | None:
    place = line.find(_TRACKED)
    if place >= 0:
        match load_json(_object(line[place + len(b"metrics_tag: ") :])):
            case {"step": step, "metrics": dict(values)} if is_step(step):
                return _record(step, values)
    return None


def _plain(line: bytes) -> Record | None:
    if b'"system/global_step": ' in line and (found := _PLAIN.search(_object(line))):
        match load_json(found[1]):
            case dict(values) if is_step(values.get(_STEP)):
                return _record(values[_STEP], values)
    return None


def _object(text: bytes) -> bytes:
    """Up to the object's end: a colour code may follow it."""
    return text[: text.rfind(b"}") + 1]


def _record(step: int, values: dict[str, Any]) -> Record | None:
    """Keys may end in how they are reduced: ``actor/pg_loss@sum``."""
    measured = {key.partition("@")[0]: value for key, value in values.items() if number(value) is not None}
    measured.pop(_STEP, None)
    return Record(step, measured) if measured else None
