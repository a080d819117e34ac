"""verl's ``file`` logger: ``{"step":12,"data":{"actor/entropy":0.41,...}}``, one line a record."""

from __future__ import annotations

from typing import Any

import orjson

from exporter.runs.signals.record import Record, is_step
from exporter.runs.sources.json_lines import JsonLines


class VerlJsonl(JsonLines):
    """verl 0.7 to 0.9. NaN and Inf stand as ``null``; there is no time and no end mark."""

    name = "verl_jsonl"
    framework = "verl"

    @staticmethod
    def record(line: bytes) -> Record | None:
        try:
            found: Any = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None
        match found:
            case {"step": step, "data": dict(values)} if is_step(step):
                return Record(step, values)
        return None
