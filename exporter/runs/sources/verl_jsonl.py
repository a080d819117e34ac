"""verl's ``file`` logger: ``{"step":12,"data":{"actor/entropy":0.41,...}}``, one line a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from exporter.runs.record import Event, Record, is_step


class VerlJsonl:
    """verl 0.7 to 0.9. NaN and Inf stand as ``null``; there is no time and no end mark."""

    name = "verl_jsonl"
    framework = "verl"

    @staticmethod
    def recognises(line: bytes) -> bool:
        return line.startswith(b"{") and _record(line) is not None

    def read(self, line: bytes) -> Iterator[Event]:
        record = _record(line)
        if record is None:
            raise ValueError("no verl record")
        yield record


def _record(line: bytes) -> Record | None:
    try:
        found: Any = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    match found:
        case {"step": step, "data": dict(values)} if is_step(step):
            return Record(step, values)
    return None
