"""The tables of docs/alert-quality.md."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from exporter.runs.stats.departure import Departure
from tests.judge.delays import Delays
from tests.judge.departures import Moved
from tests.judge.labels import Label
from tests.judge.score import Alarm, Score, Verdict
from tests.judge.stopping import Saved

SCORES = ("rules", "found in time", "late", "missed", "paged", "false critical", "false warning", "per 1,000")
SICK = ("log", "by", "first expected alert", "first page", "all alerts, with their first records")
DELAYS = ("fault", "alarm after, median / p90", "missed", "page after, median / p90", "no page")
MOVED = ("log", "onset", "what had moved 20 records after the first alert: step signal (standard deviations)")
STOPPED = ("log", "is", "records", "stopped after", "saved")
FALSE = ("log", "alert", "severity", "record")


def written(page: str, tables: Mapping[str, Iterable[str]]) -> str:
    """The page with these tables between their marks."""
    for name, lines in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        new = f"{begin}\n" + "".join(f"{line}\n" for line in lines) + end
        page, count = re.subn(f"{begin}.*?{end}", lambda _, new=new: new, page, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page has {count} places for the table {name}")
    return page


def scores(found: Mapping[str, Score]) -> list[str]:
    """A row for each set of rules."""
    return list(_table(SCORES, (_score(name, score) for name, score in found.items())))


def _score(name: str, score: Score) -> tuple[str, ...]:
    asked = len(score.found) + len(score.late) + len(score.missed)
    pages = len(score.paged) + len(score.not_paged)
    return (
        name,
        f"{len(score.found)} of {asked}",
        str(len(score.late)),
        str(len(score.missed)),
        f"{len(score.paged)} of {pages}",
        str(score.count("critical")),
        str(score.count("warning")),
        f"{score.false_warnings:.2f}",
    )


def sick(logs: Iterable[Label], verdicts: Mapping[str, Verdict]) -> list[str]:
    """A row for each log that must be found."""
    rows = (_sick(log, verdicts.get(str(log.path), Verdict()).alarms) for log in logs if log.expect)
    return list(_table(SICK, rows))


def _sick(log: Label, alarms: Sequence[Alarm]) -> tuple[str, ...]:
    expected = [alarm for alarm in alarms if alarm.name in log.expect]
    pages = [alarm for alarm in alarms if alarm.severity == "critical"]
    by = f"{log.by}, page" if log.page else "any" if log.by == math.inf else str(log.by)
    listed = ", ".join(
        f"{alarm.name} {alarm.severity[0].upper()} {alarm.record}" for alarm in _firsts(alarms)
    )
    return log.file, by, _first(expected), _first(pages), listed


def _first(alarms: Sequence[Alarm]) -> str:
    return f"{alarms[0].record} {alarms[0].name}" if alarms else "none"


def _firsts(alarms: Iterable[Alarm]) -> Iterable[Alarm]:
    firsts: dict[tuple[str, str], Alarm] = {}
    for alarm in alarms:
        firsts.setdefault((alarm.name, alarm.severity), alarm)
    return firsts.values()


def moved(logs: Iterable[Label], found: Mapping[str, Sequence[Moved]]) -> list[str]:
    """A row for each log that must be found, then in how many of the others something is named."""
    every = list(logs)
    rows = [
        (log.file, f"{each.onset} {each.alert}", ", ".join(map(_departed, each.signals)) or "none")
        for log in every
        if log.expect
        for each in found.get(str(log.path), ())
    ]
    calm = [log for log in every if log.verdict in ("healthy", "flat") and not log.expect]
    named = sum(any(each.signals for each in found.get(str(log.path), ())) for log in calm)
    return [
        *_table(MOVED, rows),
        "",
        f"Healthy and flat logs in which a signal is named: {named} of {len(calm)}.",
    ]


def _departed(signal: tuple[str, Departure]) -> str:
    name, (step, deviations) = signal
    return f"{step} {name} ({deviations:+.0f})"


def stopped(found: Iterable[Saved]) -> list[str]:
    """A row for each log of which the run is stopped, then what became of the others."""
    logs = list(found)
    rows = [
        (each.label.file, each.label.verdict, str(each.records), f"{each.stop.record} {each.stop.alert}",
         f"{1 - each.stop.record / each.records:.0%}")
        for each in logs
        if each.stop
    ]  # fmt: skip
    total = sum(each.records for each in logs if each.stop)
    kept = sum(each.records - each.stop.record for each in logs if each.stop)
    calm = [each for each in logs if each.label.verdict in ("healthy", "flat")]
    wrong = sum(each.stop is not None for each in calm)
    return [
        *_table(STOPPED, rows),
        "",
        f"Saved {kept:,} of {total:,} records. Healthy and flat runs stopped: {wrong} of {len(calm)}.",
    ]


def false(score: Score) -> list[str]:
    """A row for each false alarm."""
    rows = [(log, alarm.name, alarm.severity, str(alarm.record)) for log, alarm in score.false]
    return list(_table(FALSE, rows)) if rows else ["None."]


def delays(found: Iterable[Delays]) -> list[str]:
    """A row for each kind of fault."""
    rows = ((each.fault, *_spread(each.alarms), *_spread(each.pages)) for each in found)
    return list(_table(DELAYS, rows))


def _spread(records: Sequence[float]) -> tuple[str, str]:
    """Median and 90th percentile, then how many were never reported."""
    median, slow = (records[int(share * (len(records) - 1))] for share in (0.5, 0.9))
    missed = sum(each == math.inf for each in records)
    return f"{_records(median)} / {_records(slow)}", f"{missed} of {len(records)}"


def _records(count: float) -> str:
    return "never" if count == math.inf else f"{count:.0f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
