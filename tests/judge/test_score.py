"""The score: what counts as found, late, missed and false."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judge.labels import Label
from tests.judge.score import Alarm, Verdict, score

FOLDER = Path("logs")
SICK = Label(FOLDER, "sick.log", "sick", ("RewardDrop", "RewardCollapse"), seen=50, by=60, page=True)


def _alarm(record: int, severity: str = "critical", name: str = "RewardCollapse") -> Alarm:
    return Alarm(name, severity, "reward", record)


def _verdict(*alarms: Alarm) -> dict[str, Verdict]:
    return {str(SICK.path): Verdict(100, alarms)}


def test_an_alarm_long_before_the_fault_can_be_seen_finds_nothing_and_is_false() -> None:
    found = score([SICK], _verdict(_alarm(40)), by_name=True)
    assert (found.missed, found.not_paged) == ([SICK.file], [SICK.file])
    assert found.false == [(SICK.file, _alarm(40))]


def test_an_alarm_just_before_the_fault_can_be_seen_finds_it() -> None:
    found = score([SICK], _verdict(_alarm(41)), by_name=True)
    assert (found.found, found.paged, found.false) == ([SICK.file], [SICK.file], [])


@pytest.mark.parametrize("alarms", [[_alarm(61)], [_alarm(55, name="Truncation"), _alarm(61)]])
def test_an_alarm_after_the_last_record_that_the_label_allows_is_late(alarms: list[Alarm]) -> None:
    found = score([SICK], _verdict(*alarms), by_name=True)
    assert (found.found, found.late, found.not_paged) == ([], [SICK.file], [SICK.file])


def test_false_warnings_are_counted_for_records_in_which_nothing_was_wrong() -> None:
    healthy = Label(FOLDER, "healthy.log", "healthy")
    verdicts = {
        **_verdict(_alarm(55)),
        str(healthy.path): Verdict(60, (_alarm(7, "warning", "GradNormHigh"),)),
    }
    assert score([SICK, healthy], verdicts, by_name=True).false_warnings == 1000 / (60 + 40)
