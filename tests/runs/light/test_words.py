"""Numbers and times as people say them."""

from __future__ import annotations

import math
import time

import pytest

from exporter.runs.light import formatting


@pytest.mark.parametrize(
    ("seconds", "reported"),
    [(-3, "0 s"), (0.4, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (7200, "2 h"), (2e5, "2 d")],
)
def test_a_span_is_reported_in_the_largest_unit_that_fits(seconds: float, reported: str) -> None:
    assert formatting.span(seconds) == reported


@pytest.mark.parametrize(
    ("value", "unit", "reported"),
    [
        (None, "short", "-"),
        (math.nan, "s", "NaN"),
        (-math.inf, "short", "-Inf"),
        (0.91, "percentunit", "91 %"),
        (3.0, "s", "3 s"),
    ],
)
def test_a_value_has_its_unit_and_what_is_not_a_number_says_so(
    value: float | None, unit: str, reported: str
) -> None:
    assert formatting.value(value, unit) == reported


def test_a_time_of_another_day_has_its_date() -> None:
    now = time.time()
    assert len(formatting.clock(now)) == len("03:12:05")
    assert len(formatting.clock(now - 2 * 86400)) == len("2026-11-21 03:12:05")
    assert formatting.clock(None) == formatting.clock(1e300) == formatting.clock(math.nan) == "-"
