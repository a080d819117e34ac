"""Histories in JSON: one object a line, or one document that is rewritten as a whole.

Lines are verl's, those of trainers whose parts log lines of their own, of home-made loops, and Twinkle's
events. Documents are transformers' ``trainer_state.json``, lists of log dicts, tables of metric, step and
value, and notebooks.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from html import unescape
from typing import Any

import orjson

from exporter.runs.formats.base import Source, load_json
from exporter.runs.formats.flat import FlatRecords, flattened, is_record, is_sample
from exporter.runs.formats.tensorboard import BY_SECONDS
from exporter.runs.signals import NONE_MAPPED, Mapped
from exporter.runs.signals.record import (
    STEP_LIMIT,
    Ended,
    Event,
    Record,
    TotalSteps,
    is_step,
    number,
    seconds,
    sensible_seconds,
)

ABOUT_THE_RECORD = frozenset({"timestamp", "scope", "step"})
DEEPEST = 16  # Scopes within scopes


class JsonLines(Source):
    """A format in which every line is a record."""

    @staticmethod
    @abstractmethod
    def record(line: bytes) -> Record | None:
        """The record that the line holds, if any."""

    def recognises(self, line: bytes) -> bool:
        return line.startswith(b"{") and self.record(line) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        record = self.record(line)
        if record is None:
            raise ValueError("no record")
        yield record


class VerlJsonl(JsonLines):
    """verl's ``file`` logger: ``{"step":12,"data":{"actor/entropy":0.41,...}}``, ``null`` for NaN and Inf."""

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


class ScopedJsonl(JsonLines):
    """Each part of the trainer logs its line: ``{"scope":"rollout","step":120,"reward_mean":0.5}``.

    A scope within others is written as text (``trainer/actor``), as a list of names, or as an
    object of objects. Keys are flat, or grouped once.
    """

    name = "scoped_jsonl"
    framework = "scoped"

    @staticmethod
    def record(line: bytes) -> Record | None:
        match load_json(line):
            case {"scope": scope, "step": step} as found if is_step(step):
                names = list(_scopes(scope))
                if names:
                    values = {key: value for key, value in found.items() if key not in ABOUT_THE_RECORD}
                    return Record(step, flattened(values), seconds(found.get("timestamp")), "/".join(names))
        return None


def _scopes(scope: Any, depth: int = 0) -> Iterator[str]:
    """The names of a scope, outermost first."""
    match scope:
        case str(name):
            yield name
        case list(names) if depth < DEEPEST:
            for name in names:
                yield from _scopes(name, depth + 1)
        case dict(inner) if depth < DEEPEST:
            for name, below in inner.items():
                yield name
                yield from _scopes(below, depth + 1)


class FlatJsonl(Source):
    """Every line holds what was logged at a step, under keys that show the framework.

    ``{"step":12,"reward/mean":0.5,...}``, of home-made loops, Tinker, SkyRL and ms-swift.
    """

    name = "flat_jsonl"

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._records = FlatRecords(mapped)

    def recognises(self, line: bytes) -> bool:
        return line.startswith(b"{") and is_record(load_json(line), self._mapped)

    def parse(self, line: bytes) -> Iterator[Event]:
        if not line.strip():
            return
        match load_json(line):
            case dict(logged):
                if not is_sample(logged):
                    yield from self._records.events(logged)
            case _:
                raise ValueError("no record")


STEP_DIGITS = len(str(STEP_LIMIT - 1))
_LOOK_AT = 100  # So many entries show whether a list is a history; its first ones may hold only validation


class JsonDocument(Source):
    """A document of the whole history, whose entries from the first that differs are passed on."""

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._history: list[Any] = []
        self._total: int | None = None

    @abstractmethod
    def history(self, document: Any) -> list[Any] | None:
        """The entries of a document, or ``None`` if it holds none."""

    def recognises(self, line: bytes) -> bool:
        entries = self.history(load_json(line))
        return entries is not None and any(is_record(entry, self._mapped) for entry in entries[:_LOOK_AT])

    def parse(self, line: bytes) -> Iterator[Event]:
        document = load_json(line)
        history = self.history(document)
        if history is None:
            raise ValueError("no history")
        before, self._history = self._history, history
        match document:
            case {"max_steps": int(total)} if 0 < total < STEP_LIMIT and total != self._total:
                self._total = total
                yield TotalSteps(total)
        pairs = enumerate(zip(before, history, strict=False))
        first = next((index for index, (old, new) in pairs if old != new), min(len(before), len(history)))
        records = FlatRecords(self._mapped)  # steps that are not logged are counted from the start
        for index, entry in enumerate(history):
            if not isinstance(entry, dict) or is_sample(entry):
                continue
            with suppress(ValueError):  # one bad entry must not end the document
                events = list(records.events(entry))
                if index >= first:
                    yield from events


class TrainerState(JsonDocument):
    """The state that transformers' Trainer writes to each checkpoint."""

    name = "trainer_state"
    framework = "trl"

    def history(self, document: Any) -> list[Any] | None:
        match document:
            case {"log_history": list(entries)}:
                return entries
        return None


class JsonList(JsonDocument):
    """A list of what was logged at each step."""

    name = "json_list"

    def history(self, document: Any) -> list[Any] | None:
        return document if isinstance(document, list) else None


class MetricTable(JsonDocument):
    """``{"train/reward": {"1": 0.25, "2": 0.5}}``: what NeMo-RL's recipes make of their event files.

    Steps without a signal, such as the setup before the first step, are none.

    Source: ``tests/json_dump_tb_logs.py`` and ``tests/check_metrics.py`` of NeMo-RL (2026-08).
    """

    name = "json_metrics"

    def history(self, document: Any) -> list[Any] | None:
        if not isinstance(document, dict):
            return None
        rows: dict[int, dict[str, Any]] = {}
        for metric, column in document.items():
            if isinstance(column, dict) and not metric.startswith(BY_SECONDS):
                for step, value in column.items():
                    if step.isascii() and step.isdecimal() and len(step) <= STEP_DIGITS:
                        rows.setdefault(int(step), {})[metric] = value
        entries = [{**row, "step": step} for step, row in sorted(rows.items())]
        return [entry for entry in entries if is_record(entry, self._mapped)] or None


_TABLE = re.compile(r"(?:<progress[^>]*\bmax='(\d{1,15})'.{0,2000}?)?<table\b.*?</table>", re.DOTALL)
_HTML_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_HTML_CELL = re.compile(r"<t([hd])\b[^>]*>(.*?)</t", re.DOTALL)
_HTML_NAMES = {"Step": "step", "Training Loss": "loss", "Validation Loss": "eval_loss"}


class Notebook(JsonDocument):
    """The tables of steps that transformers' and Unsloth's trainers show in a notebook, of all its cells.

    Values have six decimals, keys of Unsloth spaces around their slashes (``completions / mean_length``).
    Source: ``utils/notebook.py`` of transformers 5.
    """

    name = "notebook"
    framework = "trl"

    def history(self, document: Any) -> list[Any] | None:
        match document:
            case {"cells": list(cells)}:
                return [row for cell in cells for row in _html_rows(cell)]
        return None


def _html_rows(cell: Any) -> Iterator[dict[str, Any]]:
    """A row for each step; a table of something else has none."""
    outputs = cell.get("outputs") if isinstance(cell, dict) else None
    for output in outputs if isinstance(outputs, list) else ():
        match output:
            case {"data": {"text/html": str() | list() as html}}:
                for table in _TABLE.finditer(html if isinstance(html, str) else "".join(map(str, html))):
                    yield from _rows_of(table[0], table[1])


def _rows_of(table: str, total: str | None) -> Iterator[dict[str, Any]]:
    head, *rows = [_HTML_CELL.findall(row) for row in _HTML_ROW.findall(table)] or [[]]
    keys = [unescape(text).strip().replace(" / ", "/") for _, text in head]
    for row in rows if "Step" in keys else ():
        if len(row) == len(keys) and all(kind == "d" for kind, _ in row):
            names = (_HTML_NAMES.get(key, key) for key in keys)
            found: dict[str, Any] = dict(zip(names, (unescape(text).strip() for _, text in row), strict=True))
            yield found | ({"max_steps": total} if total else {})


MOST_PARTITIONS = 256  # in the making at a time. The oldest is given up for another.
MOST_GROUP_KEYS = 1000
_OF_A_GROUP = frozenset({"rollout_done", "advantage_done"})
_STEP_EVENT, _DONE_EVENT = "train_step_done", "partition_done"
_END_EVENTS = {"run_completed": "finished", "run_failed": "failed"}
_SAMPLE_COUNT = "sample_count"
_LARGEST = ("_max", "_latency_s")  # A partition is there when its slowest group is


class Groups:
    """What was logged about the groups of a partition: means over all samples, and the largest of maxima."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}
        self._largest: dict[str, float] = {}

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add what an event reports about one or more groups."""
        samples = number(metrics.get(_SAMPLE_COUNT, 1)) or 1.0
        for key, raw in metrics.items():
            value = number(raw)
            if (
                value is None
                or key == _SAMPLE_COUNT
                or len(self._sums) + len(self._largest) >= MOST_GROUP_KEYS
            ):
                continue
            if key.endswith(_LARGEST):
                self._largest[key] = max(value, self._largest.get(key, value))
            else:
                total, weight = self._sums.get(key, (0.0, 0.0))
                self._sums[key] = total + value * samples, weight + samples

    def values(self) -> dict[str, Any]:
        """Key -> number."""
        return {key: total / weight for key, (total, weight) in self._sums.items()} | self._largest


class TwinkleEvents(Source):
    """Twinkle's events, one a line: ``{"ts": .., "event": "train_step_done", "metrics": {..}}``.

    Each part of the trainer logs what it did: a group of responses was generated, its advantages were
    computed, the policy was trained on a partition of groups. Only the last of these is a step. What was
    logged about the groups of its partition belongs to it; some of that is written after it, but before the
    partition is done. Each context (a tenant's adapter) is a run.

    Source: ``JSONLMetricsRecorder`` of ModelScope's Twinkle (2026-08), and ``cookbook/rl`` there.
    """

    name = "twinkle_events"
    framework = "twinkle"

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._steps: dict[str, int] = {}
        self._partitions: dict[str, Groups] = {}

    def recognises(self, line: bytes) -> bool:
        return line.startswith(b"{") and b'"partition_id"' in line and _is_event(load_json(line))

    def parse(self, line: bytes) -> Iterator[Event]:
        if not line.strip():
            return
        found = load_json(line)
        if not _is_event(found):
            raise ValueError("no event")
        event, partition, metrics = found["event"], str(found["partition_id"]), found["metrics"]
        run = str(found.get("context_key") or "")
        if event in _OF_A_GROUP:
            if partition not in self._partitions and len(self._partitions) >= MOST_PARTITIONS:
                del self._partitions[next(iter(self._partitions))]
            self._partitions.setdefault(partition, Groups()).add(metrics)
        elif event == _STEP_EVENT:
            logged = metrics.get("optimizer_step")
            self._steps[run] = logged if is_step(logged) else self._steps.get(run, 0) + 1
            yield self._record(run, metrics, found)
        elif event == _DONE_EVENT:
            groups = self._partitions.pop(partition, Groups())
            if run in self._steps:
                yield self._record(run, groups.values() | metrics, found)
        elif event in _END_EVENTS:
            for each in self._steps:
                yield Ended(_END_EVENTS[event], run=each)

    def _record(self, run: str, values: Mapping[str, Any], event: Mapping[str, Any]) -> Record:
        measured = {key: value for key, value in values.items() if number(value) is not None}
        return Record(self._steps[run], measured, sensible_seconds(event.get("ts")), run=run)


def _is_event(found: Any) -> bool:
    match found:
        case {"event": str(), "partition_id": _, "metrics": dict()}:
            return True
    return False
