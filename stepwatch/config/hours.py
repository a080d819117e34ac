"""When a receiver is notified: hours of a week, or Alertmanager's time intervals by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from zoneinfo import available_timezones

from stepwatch.schema.errors import Fault
from stepwatch.schema.scalars import ReceiverName
from stepwatch.schema.section import Checked, Section, default, needed, not_empty

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_TIMES = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]|24):([0-5]\d)")
Range = tuple[int, int]
Minutes = tuple[str, str]


def _times(value: Any) -> Minutes:
    """A span of a day: "09:00-17:00", or Alertmanager's start_time and end_time."""
    if isinstance(value, tuple):
        return value
    text = value
    if isinstance(value, Mapping) and set(value) == {"start_time", "end_time"}:
        text = f"{value['start_time']}-{value['end_time']}"
    match = _TIMES.fullmatch(text) if isinstance(text, str) else None
    if not match or text[6:] > "24:00":
        raise Fault(
            "is not a time range", expected="a text such as 09:00-17:30", fix="write hours and minutes"
        )
    start, end = text.split("-")
    if start >= end:
        raise Fault(
            "ends before it begins",
            expected="an end on the same day, at most 24:00",
            fix=f"write two: {start}-24:00 and 00:00-{end}",
        )
    return start, end


def _range(names: tuple[str, ...], low: int, high: int, expected: str) -> Callable[[Any], Range]:
    """Return the check of one value or a range with ``:``, as numbers; names count from ``low``."""

    def number(text: str) -> int:
        if text.lower() in names:
            return names.index(text.lower()) + low
        if re.fullmatch(r"-?\d{1,4}", text) and low <= int(text) <= high and int(text):
            return int(text)
        raise ValueError(text)

    def check(value: Any) -> Range:
        if isinstance(value, tuple):
            return value
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        try:
            first, _, last = text.partition(":")
            found = (number(first), number(last or first))
        except (AttributeError, ValueError) as error:
            raise Fault("is not valid", expected=expected, fix="write one of these, or first:last") from error
        if found[0] > found[1] and (found[0] > 0) == (found[1] > 0):
            raise Fault("ends before it begins", expected=expected, fix="write two ranges")
        return found

    return check


def _zone(value: Any) -> str:
    if isinstance(value, str) and (value in ("UTC", "Local") or value in available_timezones()):
        return value
    raise Fault(
        "is not a time zone",
        expected="a name such as Europe/Berlin or Asia/Shanghai, UTC, or Local",
        fix="write one of the IANA time zone database",
    )


Times = Annotated[Minutes, Checked(_times)]
# Alertmanager counts weekdays from Sunday; ours are rendered by their names.
Weekdays = Annotated[
    Range, Checked(_range(DAYS, 1, 7, "a weekday such as monday, or a range such as monday:friday"))
]
MonthDays = Annotated[Range, Checked(_range((), -31, 31, "a day from 1 to 31, -1 for the last, or a range"))]
Months = Annotated[Range, Checked(_range(_MONTHS, 1, 12, "a month by name or number, or a range"))]
Years = Annotated[Range, Checked(_range((), 1970, 9999, "a year, or a range"))]
Zone = Annotated[str, Checked(_zone)]


class When(Section):
    """Hours of a week: those that fit each key that is given."""

    times: tuple[Times, ...] = default((), "Time ranges within a day, such as 09:00-17:00. Empty: all day.")
    weekdays: tuple[Weekdays, ...] = default((), "Weekdays, such as monday:friday. Empty: every day.")
    location: Zone = default(
        "UTC",
        "The time zone of these keys, such as Europe/Berlin or Asia/Shanghai. Local: the machine's own.",
    )

    def settings(self) -> dict[str, Any]:
        """Return it as Alertmanager's settings have it."""
        spans = [{"start_time": start, "end_time": end} for start, end in self.times]
        days = [":".join(DAYS[day - 1] for day in dict.fromkeys(span)) for span in _week(self.weekdays)]
        rest = {
            key: [f"{first}:{last}" for first, last in getattr(self, key, ())]
            for key in ("days_of_month", "months", "years")
        }
        known = {"times": spans, "weekdays": days, **rest}
        return {key: value for key, value in known.items() if value} | {"location": self.location}


class Hours(When):
    """Spans of time, in Alertmanager's own form."""

    days_of_month: tuple[MonthDays, ...] = default(
        (), "Days of the month, -1 for the last. Empty: every day."
    )
    months: tuple[Months, ...] = default((), "Months, by name or number. Empty: all.")
    years: tuple[Years, ...] = default((), "Years. Empty: all.")


def _week(spans: tuple[Range, ...]) -> list[Range]:
    """Ranges of weekdays as Alertmanager counts: from Sunday on."""
    found = []
    for first, last in spans:
        if last == len(DAYS) and first < last:
            found += [(first, last - 1), (last, last)]
        else:
            found.append((first, last))
    return found


class TimeInterval(Section):
    """A named time, in Alertmanager's own form."""

    name: ReceiverName = needed("Its name; unique.")
    time_intervals: Annotated[
        tuple[Hours, ...], not_empty("one time range or more", "write a time range, or delete it")
    ] = needed("The intervals; any of them may match.")

    def settings(self) -> dict[str, Any]:
        """Return it as Alertmanager's settings have it."""
        return {"name": self.name, "time_intervals": [each.settings() for each in self.time_intervals]}
