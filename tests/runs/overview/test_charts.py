"""Curves of long runs: few points, and nothing that stood out is lost."""

from __future__ import annotations

import math
import random

import pytest

from exporter.runs.overview import charts
from exporter.runs.overview.charts import MOST_POINTS, Curve, curve, thinned


def points(values: list[float]) -> list[tuple[int, float]]:
    numbered = dict(enumerate(values, 1))
    return [point for piece in curve("a", numbered, range(1, len(values) + 1)).pieces for point in piece]


@pytest.mark.parametrize("records", [401, 999, 10_000])
def test_a_long_curve_has_few_points_and_keeps_what_stands_out(records: int) -> None:
    dice = random.Random(records)
    values = [dice.gauss(0, 1) for _ in range(records)]
    up, down = 137, records - 7
    values[up], values[down] = 50, -50

    kept = points(values)
    assert len(kept) <= MOST_POINTS
    assert {(up + 1, 50), (down + 1, -50)} <= set(kept)
    assert kept == sorted(kept)
    assert set(kept) <= set(enumerate(values, 1))


def test_a_short_curve_keeps_every_point() -> None:
    values = [float(index % 3) for index in range(400)]
    assert points(values) == list(enumerate(values, 1))


def test_what_is_not_finite_or_nearly_so_is_not_drawn() -> None:
    found = curve("a", {1: 1.0, 2: math.inf, 3: 2.0, 4: -1e301, 5: 3.0}, range(1, 6))
    assert found.pieces == (((1, 1.0),), ((3, 2.0),), ((5, 3.0),))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-0.0425, 0.0425, [-0.04, -0.02, 0, 0.02, 0.04]),
        (0, 435, [0, 100, 200, 300, 400]),
        (1e-9, 3e-9, [1e-9, 1.5e-9, 2e-9, 2.5e-9, 3e-9]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert charts.round_multiples(low, high, 3) == expected


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(5, 5, [5]), (1, 6, [1, 2, 3, 4, 5, 6]), (101, 435, [200, 300, 400]), (1, 10, [2, 4, 6, 8, 10])],
)
def test_steps_are_whole(first: int, last: int, expected: list[int]) -> None:
    assert charts.round_steps(first, last, 3) == expected


def test_bytes_are_round_in_the_unit_that_is_written() -> None:
    ticks = charts.round_values(0, 90 * 2**30, "bytes", 3)
    assert [charts.format_number(tick, "bytes") for tick in ticks] == [
        "0 B",
        "20 GiB",
        "40 GiB",
        "60 GiB",
        "80 GiB",
    ]


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.305, "percentunit", "30.5 %"),
        (12.5, "s", "12.5 s"),
        (12345, "short", "12.35k"),
        (1e7, "none", "10M"),
        (0.00012345, "short", "0.0001234"),
        (3e20, "short", "3e+20"),
        (36.6, "celsius", "36.6"),
    ],
)
def test_numbers_are_written_as_people_do(value: float, unit: str, expected: str) -> None:
    assert charts.format_number(value, unit) == expected


def test_thinning_again_keeps_what_stands_out_and_where_the_curve_is_broken() -> None:
    rising = tuple((step, float(step)) for step in range(1, 1001))
    again = tuple((step, 0.0) for step in range(500, 1501))
    found = thinned(Curve("a", (rising, again), "critical"))
    assert (found.name, found.severity) == ("a", "critical")
    assert len(found.values) <= MOST_POINTS
    assert [(piece[0], piece[-1]) for piece in found.pieces] == [
        ((1, 1.0), (1000, 1000.0)),
        ((500, 0.0), found.pieces[1][-1]),
    ]


def test_a_curve_that_is_a_number_at_every_other_record_only_is_thinned_too() -> None:
    pieces = tuple(((step, float(step % 7)),) for step in range(0, 20_000, 2))
    assert len(thinned(Curve("a", pieces)).values) <= MOST_POINTS
