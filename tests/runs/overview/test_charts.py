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


def test_what_is_not_finite_or_nearly_so_is_not_drawn() -> None:
    found = curve("a", {1: 1.0, 2: math.inf, 3: 2.0, 4: -1e301, 5: 3.0}, range(1, 6))
    assert found.pieces == (((1, 1.0),), ((3, 2.0),), ((5, 3.0),))


@pytest.mark.parametrize(
    ("low", "high", "unit", "expected"),
    [
        (-0.0425, 0.0425, "short", "-0.04 -0.02 0 0.02 0.04"),
        (0, 435, "short", "0 100 200 300 400"),
        (0.1, 0.305, "percentunit", "10 % 15 % 20 % 25 % 30 %"),
        (0, 90 * 2**30, "bytes", "0 B 20 GiB 40 GiB 60 GiB 80 GiB"),
        (12345, 36000, "s", "15k s 20k s 25k s 30k s 35k s"),
        (1e7, 4e7, "none", "10M 20M 30M 40M"),
        (1e-9, 3e-9, "short", "1e-09 1.5e-09 2e-09 2.5e-09 3e-09"),
    ],
)
def test_ticks_are_round_and_written_as_people_do(low: float, high: float, unit: str, expected: str) -> None:
    ticks = charts.round_values(low, high, unit, 3)
    assert " ".join(charts.format_number(tick, unit) for tick in ticks) == expected


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
