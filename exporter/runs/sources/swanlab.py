"""SwanLab's local log: ``run-<id>.swanlab``, which it keeps in every mode, one scalar a record.

Records are protocol buffers (``swanlab/record/v1``, ``metric/data/v1``, ``run/v1`` of SwanLab 0.10.3). Its
writer fills a buffer of some kilobytes before the file grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from struct import Struct

from exporter.runs.signals.record import STEP_LIMIT, Ended, Event, Record
from exporter.runs.sources.protobuf import EIGHT_BYTES, SIZED, VARINT, fields, key

KEYS = 10_000
"""Gathered in one record; no trainer has as many."""

_FINISH, _SCALAR = key(11, SIZED), key(13, SIZED)
_KEY, _STEP, _TIME, _VALUE = key(1, SIZED), key(2, VARINT), key(4, SIZED), key(5, SIZED)
_SECONDS, _NANOS = key(1, VARINT), key(2, VARINT)
_NUMBER = key(1, EIGHT_BYTES)
_STATE = key(1, VARINT)
_STATES = {1: "finished", 2: "failed", 3: "failed"}
"""``RunState``: finished, crashed, aborted."""

_OWN = "__swanlab__"
"""Before the keys of the machine's load, whose steps are others."""

_double = Struct("<d").unpack


class SwanLab:
    """The scalars of one run, gathered by step; its end is logged."""

    name = "swanlab"
    framework = ""

    def __init__(self) -> None:
        self._gathered: Record | None = None
        self._values: dict[str, float] = {}

    @staticmethod
    def recognises(line: bytes) -> bool:
        try:
            return _scalar(dict(fields(line))) is not None
        except ValueError:
            return False

    def read(self, line: bytes) -> Iterator[Event]:
        found = dict(fields(line))
        scalar = _scalar(found)
        if scalar is not None:
            yield from self._gather(*scalar)
        elif _FINISH in found:
            yield from self.rest()
            state = _STATES.get(dict(fields(found[_FINISH])).get(_STATE, 0))
            if state:
                yield Ended(state)

    def rest(self) -> Iterator[Event]:
        """The step that may not be complete yet; what comes later of it is another record."""
        gathered, self._gathered = self._gathered, None
        if gathered is not None:
            yield gathered

    def _gather(self, name: str, step: int, time: float | None, number: float) -> Iterator[Event]:
        record = self._gathered
        if record is None or record.step != step or name in self._values or len(self._values) >= KEYS:
            yield from self.rest()
            self._values = {}
            self._gathered = Record(step, self._values, time)
        self._values[name] = number


def _scalar(found: dict[int, bytes]) -> tuple[str, int, float | None, float] | None:
    """Key, step, time and number of a record that holds a scalar of the trainer.

    Raises:
        ValueError: it is damaged, or no trainer made that many steps.
    """
    if _SCALAR not in found:
        return None
    scalar = dict(fields(found[_SCALAR]))
    name, step = scalar.get(_KEY, b"").decode(), scalar.get(_STEP, 0)
    if name.startswith(_OWN):
        return None
    if step >= STEP_LIMIT:
        raise ValueError("no record: no trainer made that many steps")
    number = dict(fields(scalar.get(_VALUE, b""))).get(_NUMBER, bytes(8))
    return name, step, _seconds(scalar.get(_TIME, b"")), _double(number)[0]


def _seconds(timestamp: bytes) -> float | None:
    """Seconds since the epoch."""
    found = dict(fields(timestamp))
    seconds = found.get(_SECONDS, 0) + found.get(_NANOS, 0) / 1e9
    return seconds if 0 < seconds < math.inf else None
