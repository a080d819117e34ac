"""Twinkle's events, one JSON object a line: ``{"ts": .., "event": "train_step_done", "metrics": {..}}``.

Each part of the trainer logs what it did: a group of responses was generated, its advantages were
computed, the policy was trained on a partition of groups. Only the last of these is a step. What was
logged about the groups of its partition belongs to it; some of that is written after it, but before the
partition is done. Each context (a tenant's adapter) is a run.

Source: ``JSONLMetricsRecorder`` of ModelScope's Twinkle (2026-08), and ``cookbook/rl`` there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from exporter.runs.signals.record import Ended, Event, Record, is_step, number, sensible_seconds
from exporter.runs.sources.base import Source, load_json

MOST_PARTITIONS = 256
"""In the making at a time. The oldest is given up for another."""

MOST_KEYS = 1000

_OF_A_GROUP = frozenset({"rollout_done", "advantage_done"})
_STEP, _DONE = "train_step_done", "partition_done"
_ENDS = {"run_completed": "finished", "run_failed": "failed"}
_SAMPLES = "sample_count"
_LARGEST = ("_max", "_latency_s")
"""A partition is there when its slowest group is."""


class Groups:
    """What was logged about the groups of a partition: means over all samples, and the largest of maxima."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}
        self._largest: dict[str, float] = {}

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add what an event reports about one or more groups."""
        samples = number(metrics.get(_SAMPLES, 1)) or 1.0
        for key, raw in metrics.items():
            value = number(raw)
            if value is None or key == _SAMPLES or len(self._sums) + len(self._largest) >= MOST_KEYS:
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
    """The events of one trainer. A run is known by its context."""

    name = "twinkle_events"
    framework = "twinkle"

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}
        self._partitions: dict[str, Groups] = {}

    @classmethod
    def recognises(cls, line: bytes) -> bool:
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
        elif event == _STEP:
            logged = metrics.get("optimizer_step")
            self._steps[run] = logged if is_step(logged) else self._steps.get(run, 0) + 1
            yield self._record(run, metrics, found)
        elif event == _DONE:
            groups = self._partitions.pop(partition, Groups())
            if run in self._steps:
                yield self._record(run, groups.values() | metrics, found)
        elif event in _ENDS:
            for each in self._steps:
                yield Ended(_ENDS[event], run=each)

    def _record(self, run: str, values: Mapping[str, Any], event: Mapping[str, Any]) -> Record:
        measured = {key: value for key, value in values.items() if number(value) is not None}
        return Record(self._steps[run], measured, sensible_seconds(event.get("ts")), run=run)


def _is_event(found: Any) -> bool:
    match found:
        case {"event": str(), "partition_id": _, "metrics": dict()}:
            return True
    return False
