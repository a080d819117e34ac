"""When actions would have stopped a run of a log: a critical alert still fires after its veto window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tests.judge.labels import Label
from tests.judge.score import Verdict

VETO_RECORDS = 10
"""For a veto that never comes."""


class Stop(NamedTuple):
    """The record after which a run ends that is stopped, and for which alert."""

    record: int
    alert: str


def stop(verdict: Verdict) -> Stop | None:
    """Return when a run is stopped if each critical alert stops it; ``None`` if none does."""
    pages = [alarm for alarm in verdict.alarms if alarm.severity == "critical"]
    due = ((alarm, alarm.record + VETO_RECORDS) for alarm in pages)
    stops = (Stop(record, alarm.name) for alarm, record in due if record <= min(alarm.last, verdict.records))
    return min(stops, default=None)


class Saved(NamedTuple):
    """What became of a log: its records, and when its run is stopped."""

    label: Label
    records: int
    stop: Stop | None


def saved(labels: Iterable[Label], verdicts: Mapping[str, Verdict]) -> Iterator[Saved]:
    """Yield what becomes of each log that has a run."""
    for label in labels:
        verdict = verdicts.get(str(label.path), Verdict())
        if verdict.records:
            yield Saved(label, verdict.records, stop(verdict))
