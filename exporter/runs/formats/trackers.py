"""The local files of experiment trackers: W&B, SwanLab, Trackio."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Any

from exporter.runs.formats.base import Source, load_json
from exporter.runs.formats.console import ending, servers
from exporter.runs.formats.flat import FlatRecords, flattened, is_record
from exporter.runs.formats.progress_bar import MovingBars
from exporter.runs.formats.protobuf import EIGHT_BYTES, SIZED, VARINT, fields, key
from exporter.runs.signals import NONE_MAPPED, Mapped, measurements
from exporter.runs.signals.record import (
    STEP_LIMIT,
    Ended,
    Event,
    Record,
    TotalSteps,
    is_step,
    number,
    seconds,
)

LONGEST_VALUE = 100  # in bytes; what is longer is not a number
_HISTORY, _CONSOLE, _EXIT = key(2, SIZED), key(13, SIZED), key(18, SIZED)
_ITEM = key(1, SIZED)
_KEY, _KEY_PART, _JSON = key(1, SIZED), key(2, SIZED), key(16, SIZED)
_PRINTED = key(3, SIZED)
_EXIT_CODE = key(1, VARINT)
_BAR = re.compile(rb"\d{1,3}%\|[^|]*\|\s*(\d{1,15})/(\d{1,15}) \[")


class WandbFile(Source):
    """W&B's transaction log, ``run-<id>.wandb``: what a trainer logged, exactly, and how it ended.

    The file is a log in LevelDB's format; each record is a message. Those of the history hold the keys of
    one ``wandb.log`` with their values in JSON, those of the console what was printed, the last one the
    exit code. W&B writes 32 KiB at a time: steps come some minutes late, and a trainer that is killed
    takes its last ones with it. The total of the steps is that of the progress bar that moves with them, step
    by step.

    Source: ``wandb/proto/wandb_internal.proto`` of W&B 0.31.
    """

    name = "wandb"

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._records = FlatRecords(mapped)
        self._bars = MovingBars()
        self._step: int | None = None
        self._total: int | None = None

    def recognises(self, line: bytes) -> bool:
        try:
            return any(
                is_record(_logged(found), self._mapped) for kind, found in fields(line) if kind == _HISTORY
            )
        except ValueError:
            return False

    def parse(self, line: bytes) -> Iterator[Event]:
        for kind, found in fields(line):
            if kind == _HISTORY:
                for event in self._records.events(_logged(found)):
                    if isinstance(event, Record):
                        yield from self._new_total(event.step)
                    yield event
            elif kind == _CONSOLE:
                yield from self._printed(dict(fields(found)).get(_PRINTED, b""))
            elif kind == _EXIT:
                yield Ended("failed" if dict(fields(found)).get(_EXIT_CODE) else "finished")

    def _new_total(self, step: int) -> Iterator[Event]:
        if step == self._step:
            return
        self._step = step
        totals = self._bars.step(step)
        if totals and self._total not in totals:
            self._total = max(totals)
            yield TotalSteps(self._total)

    def _printed(self, text: bytes) -> Iterator[Event]:
        for found in _BAR.finditer(text):
            self._bars.draw(int(found[1]), int(found[2]))
        if mention := servers(text):
            yield mention
        if ended := ending(text):
            yield ended


def _logged(row: bytes) -> dict[str, Any]:
    """Key -> number as it is written, of one call of ``wandb.log``. A key in others is ``outer/inner``."""
    logged: dict[str, Any] = {}
    for kind, item in fields(row):
        if kind == _ITEM:
            parts = list(fields(item))
            name = b"/".join(part for part_key, part in parts if part_key in (_KEY, _KEY_PART))
            value = next((part for part_key, part in parts if part_key == _JSON), b"")
            text = value.decode("utf-8", "replace") if len(value) <= LONGEST_VALUE else ""
            if number(text) is not None:
                logged[name.decode("utf-8", "replace")] = text
    return logged


KEYS = 10_000  # Gathered in one record; no trainer has as many
_FINISH, _SCALAR = key(11, SIZED), key(13, SIZED)
_STEP, _TIME, _VALUE = key(2, VARINT), key(4, SIZED), key(5, SIZED)
_SECONDS, _NANOS = key(1, VARINT), key(2, VARINT)
_NUMBER = key(1, EIGHT_BYTES)
_STATE = key(1, VARINT)
_STATES = {1: "finished", 2: "failed", 3: "failed"}  # ``RunState``: finished, crashed, aborted
_OWN = "__swanlab__"  # before the keys of the machine's load, whose steps are others
_double = Struct("<d").unpack


class SwanLab(Source):
    """SwanLab's local log, ``run-<id>.swanlab``, which it writes in every mode, one scalar a record.

    The scalars of one run are gathered by step. Records are protocol buffers (``swanlab/record/v1``,
    ``metric/data/v1``, ``run/v1`` of SwanLab 0.10.3). Its writer fills a buffer of some kilobytes before
    the file grows.
    """

    name = "swanlab"

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._gathered: Record | None = None
        self._values: dict[str, float] = {}

    def recognises(self, line: bytes) -> bool:
        try:
            return _scalar(dict(fields(line))) is not None
        except ValueError:
            return False

    def parse(self, line: bytes) -> Iterator[Event]:
        found = dict(fields(line))
        if scalar := _scalar(found):
            name, step, time, value = scalar
            record = self._gathered
            if record is None or record.step != step or name in self._values or len(self._values) >= KEYS:
                yield from self.flush()
                self._values = {}
                self._gathered = Record(step, self._values, time)
            self._values[name] = value
        elif _FINISH in found:
            yield from self.flush()
            if state := _STATES.get(dict(fields(found[_FINISH])).get(_STATE, 0)):
                yield Ended(state)

    def flush(self) -> Iterator[Event]:
        """The step that may not be complete yet; what comes later of it is another record."""
        gathered, self._gathered = self._gathered, None
        if gathered is not None:
            yield gathered


def _scalar(found: dict[int, bytes]) -> tuple[str, int, float | None, float] | None:
    """Key, step, time (since the epoch) and number of a trainer's scalar, if it is one. Raises ValueError."""
    if _SCALAR not in found:
        return None
    scalar: dict[int, Any] = dict(fields(found[_SCALAR]))
    name, step = scalar.get(_KEY, b"").decode(), scalar.get(_STEP, 0)
    if name.startswith(_OWN):
        return None
    if step >= STEP_LIMIT:
        raise ValueError("invalid record: the step number is too high")
    stamp = dict(fields(scalar.get(_TIME, b"")))
    time = stamp.get(_SECONDS, 0) + stamp.get(_NANOS, 0) / 1e9
    value = dict(fields(scalar.get(_VALUE, b""))).get(_NUMBER, bytes(8))
    return name, step, time if 0 < time < math.inf else None, _double(value)[0]


_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
_OF_TRANSFORMERS = "train/global_step"
"""transformers' callback logs without a step: Trackio counts its calls then."""
_SHORT = 8  # characters of an id that distinguish two runs of one name


class Trackio(Source):
    """Trackio's local database: a row of the table ``metrics`` for each call of ``trackio.log``.

    Rows hold the project's runs by name, each with its step and a JSON object of values, in which NaN and
    Inf are texts. A second run of the same name is distinguished by the start of its id. Rows come as the
    lines that ``readers.database`` makes of them.

    Source: ``trackio/sqlite_storage.py`` and ``utils.py`` of 0.43.0.
    """

    name = "trackio"

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._ids: dict[str, str] = {}

    def recognises(self, line: bytes) -> bool:
        match load_json(line):
            case {"run": str(), "step": step, "metrics": dict(metrics)} if is_step(step):
                return measurements(tuple(_measured(metrics)), self._mapped) > 0
        return False

    def parse(self, line: bytes) -> Iterator[Event]:
        match row := load_json(line):
            case {"run": str(run), "id": str(code), "step": step, "metrics": dict(metrics)} if is_step(step):
                values = _measured(metrics)
                name = self._named(run, code)
                logged = values.pop(_OF_TRANSFORMERS, None)
                if values:
                    at = logged if is_step(logged) else step
                    yield Record(at, values, seconds(row.get("time")), run=name)
            case {"run": str(run), "id": str(code), "config": {"max_steps": total}} if (
                is_step(total) and total
            ):
                yield TotalSteps(total, run=self._named(run, code))
            case {"config": _}:
                pass
            case _:
                raise ValueError("no row of metrics")

    def _named(self, run: str, code: str) -> str:
        return run if self._ids.setdefault(run, code) == code else f"{run} {code[:_SHORT]}"


def _measured(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers, and the texts of those that are not finite."""
    return {
        key: value
        for key, value in flattened(metrics).items()
        if (type(value) in (int, float) and number(value) is not None)
        or (type(value) is str and value in _NOT_FINITE)
    }
