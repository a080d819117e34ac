"""How many records after a fault set in the first alarm, and the first page, would have come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.judge.faults import Faulty
from tests.judge.score import Verdict

NEVER = float("inf")


class Delays(NamedTuple):
    """Of one kind of fault: records until it was reported, for each log; ``NEVER`` where it was not."""

    fault: str
    alarms: tuple[float, ...]
    pages: tuple[float, ...]


def delays(faulty: Sequence[Faulty], verdicts: Mapping[str, Verdict]) -> list[Delays]:
    """The delays of each kind of fault, from verdicts by log."""
    kinds = dict.fromkeys(each.fault for each in faulty)
    return [_of([each for each in faulty if each.fault == kind], verdicts) for kind in kinds]


def _of(faulty: Sequence[Faulty], verdicts: Mapping[str, Verdict]) -> Delays:
    alarms = [_first(each, verdicts[str(each.log)], ("warning", "critical")) for each in faulty]
    pages = [_first(each, verdicts[str(each.log)], ("critical",)) for each in faulty]
    return Delays(faulty[0].fault, tuple(sorted(alarms)), tuple(sorted(pages)))


def _first(faulty: Faulty, verdict: Verdict, severities: Iterable[str]) -> float:
    after = (alarm.record for alarm in verdict.alarms if alarm.severity in severities)
    return min((record - faulty.begins + 1 for record in after if record >= faulty.begins), default=NEVER)
