"""When the circuit breaker would have stopped a run of a log, by its own decisions: a record is a second."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from exporter.actions.policy import Action, Alert, Attempt, Limits, Result, Rule, Seen, to_go_on, to_open
from tests.judge.labels import Label
from tests.judge.score import Alarm, Verdict

VETO_RECORDS = 10
"""For a veto that never comes."""
LIMITS = Limits(dry_run=False, veto=VETO_RECORDS)
ATTEMPT = Attempt("log", 1, 0.0)


class Stop(NamedTuple):
    """The record after which a run ends that is stopped, and for which alert."""

    record: int
    alert: str


def stop(verdict: Verdict) -> Stop | None:
    """Return when a run is stopped if each critical alert stops it; ``None`` if none does."""
    pages = [alarm for alarm in verdict.alarms if alarm.severity == "critical"]
    stops = (each for alarm in pages if (each := _stopped(alarm, verdict.records)))
    return min(stops, default=None)


def _stopped(alarm: Alarm, records: int) -> Stop | None:
    rule = Rule(alarm.name, "critical", 0.0, re.compile(".*"), ("stop",))
    alert = Alert(alarm.name, {"alertname": alarm.name, "severity": "critical", "run": "x"}, alarm.record)
    action: Action | None = None
    for now in range(alarm.record, records + 1):
        seen = Seen(holds=now <= alarm.last, attempt=ATTEMPT, alive=True)
        if action is None:
            decided = to_open(
                rule, LIMITS, alert, seen, (), off=False, started=-1.0, held=alarm.record, now=now
            )
            if decided.verb != "open":
                continue
            action = Action(
                "x", "x", alarm.name, "critical", alarm.name, alarm.record, ATTEMPT, rule.do, None,
                dry_run=False, opened=now,
            )  # fmt: skip
        decided = to_go_on(action, seen, off=False, now=now)
        if decided.verb == "announce":
            action.announced, action.deadline = now, now + LIMITS.veto
        elif decided.verb == "do":
            action.results["stop"] = Result(done=True, text="")
            return Stop(now, alarm.name)
        elif decided.verb == "close":
            return None
    return None


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
