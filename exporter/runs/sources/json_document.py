"""Histories that are rewritten as a whole.

transformers' ``trainer_state.json``, lists of log dicts, and tables of metric, step and value.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from exporter.runs.signals.record import STEP_LIMIT, Event, TotalSteps
from exporter.runs.sources.base import Source, load_json
from exporter.runs.sources.flat import FlatRecords, is_record, is_sample
from exporter.runs.sources.tensorboard import BY_SECONDS

STEP_DIGITS = len(str(STEP_LIMIT - 1))
_LOOK_AT = 100
"""So many entries show whether a list is a history; its first ones may hold only validation."""


class JsonDocument(Source):
    """A document that holds the whole history. ``parse`` gets it again whenever it was rewritten.

    Entries that were there before are passed over. Where the history was rewritten, it is passed
    on from the first entry that differs: the run sees the step go back.
    """

    def __init__(self) -> None:
        self._history: list[Any] = []
        self._total: int | None = None

    @staticmethod
    @abstractmethod
    def history(document: Any) -> list[Any] | None:
        """The entries of a document, or ``None`` if it holds none."""

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        entries = cls.history(load_json(line))
        return entries is not None and any(map(is_record, entries[:_LOOK_AT]))

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
        records = FlatRecords()  # steps that are not logged are counted from the start
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

    @staticmethod
    def history(document: Any) -> list[Any] | None:
        match document:
            case {"log_history": list(entries)}:
                return entries
        return None


class JsonList(JsonDocument):
    """A list of what was logged at each step."""

    name = "json_list"

    @staticmethod
    def history(document: Any) -> list[Any] | None:
        return document if isinstance(document, list) else None


class MetricTable(JsonDocument):
    """``{"train/reward": {"1": 0.25, "2": 0.5}}``: what NeMo-RL's recipes make of their event files.

    Steps without a signal, such as the setup before the first step, are none.

    Source: ``tests/json_dump_tb_logs.py`` and ``tests/check_metrics.py`` of NeMo-RL (2026-08).
    """

    name = "json_metrics"

    @staticmethod
    def history(document: Any) -> list[Any] | None:
        if not isinstance(document, dict):
            return None
        rows: dict[int, dict[str, Any]] = {}
        for metric, column in document.items():
            if isinstance(column, dict) and not metric.startswith(BY_SECONDS):
                for step, value in column.items():
                    if step.isascii() and step.isdecimal() and len(step) <= STEP_DIGITS:
                        rows.setdefault(int(step), {})[metric] = value
        entries = [{**row, "step": step} for step, row in sorted(rows.items())]
        return [entry for entry in entries if is_record(entry)] or None
