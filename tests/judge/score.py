"""The score of a set of rules: what was found in time, found late, missed, and what was false."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stepwatch.backtest.judge import APART
from tests.judge.labels import Label


class Alarm(NamedTuple):
    """An alarm of any set of rules; ``topic`` is "" where they have none. Records count from 1.

    ``last`` is the record at which it still fires, 0 where it is reported once.
    """

    name: str
    severity: str
    topic: str
    record: int
    last: int = 0


class Verdict(NamedTuple):
    """A log: its records, and all alarms on its runs, the first first."""

    records: int = 0
    alarms: tuple[Alarm, ...] = ()


@dataclass
class Score:
    """Logs by what came of them; false alarms with their log."""

    found: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    paged: list[str] = field(default_factory=list)
    not_paged: list[str] = field(default_factory=list)
    false: list[tuple[str, Alarm]] = field(default_factory=list)
    healthy_records: int = 0

    def count(self, severity: str) -> int:
        """False alarms of a severity."""
        return sum(alarm.severity == severity for _, alarm in self.false)

    @property
    def false_warnings(self) -> float:
        """For each 1,000 records in which nothing was wrong."""
        return 1000 * self.count("warning") / max(1, self.healthy_records)


def score(labels: Iterable[Label], verdicts: Mapping[str, Verdict], *, by_name: bool) -> Score:
    """Score alarms against labels.

    Args:
        labels: What each log is.
        verdicts: What was raised on each file, by its path; a file without a run has none.
        by_name: Only an alarm that the label expects counts as finding it; rules of others, whose names
            mean something else, find it by any alarm.
    """
    total = Score()
    for label in labels:
        verdict = verdicts.get(str(label.path), Verdict())
        if label.expect:
            _found(total, label, _detecting(label, verdict.alarms, by_name=by_name))
        if label.verdict in ("healthy", "flat"):
            total.healthy_records += verdict.records
        if label.verdict == "sick":
            total.healthy_records += min(max(0, label.seen - APART), verdict.records)
        total.false += [(label.file, alarm) for alarm in false(label, verdict.alarms)]
    return total


def _detecting(label: Label, alarms: Sequence[Alarm], *, by_name: bool) -> list[Alarm]:
    return [alarm for alarm in alarms if not by_name or alarm.name in label.expect]


def _found(total: Score, label: Label, alarms: Sequence[Alarm]) -> None:
    alarms = [alarm for alarm in alarms if alarm not in false(label, alarms)]
    in_time = [alarm for alarm in alarms if alarm.record <= label.by]
    (total.found if in_time else total.late if alarms else total.missed).append(label.file)
    if label.page:
        paged = any(alarm.severity == "critical" for alarm in in_time)
        (total.paged if paged else total.not_paged).append(label.file)


def false(label: Label, alarms: Iterable[Alarm]) -> list[Alarm]:
    """Those alarms that such a log must not raise; info is no alarm."""
    return [alarm for alarm in alarms if alarm.severity != "info" and _is_false(label, alarm)]


def _is_false(label: Label, alarm: Alarm) -> bool:
    about_reward, pages = alarm.topic in ("reward", ""), alarm.severity == "critical"
    match label.verdict:
        case "healthy":
            return True
        case "sick":
            return max(alarm.record, alarm.last) <= label.seen - APART
        case "flat":
            return pages or not about_reward
        case "nan":
            return alarm.name != "NonFinite"
        case "borderline" | "other":
            return about_reward and (pages or label.verdict == "other")
    return False
