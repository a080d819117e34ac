from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.model.history import MOST_STRETCHES, Extremes

NUMBERS = st.floats(-1e9, 1e9)


def drawn(values: list[float]) -> list[tuple[int, float]]:
    curve = Extremes()
    for step, value in enumerate(values, 1):
        curve.add(step, value)
    return [point for piece in curve.pieces() for point in piece]


@given(st.lists(NUMBERS, max_size=MOST_STRETCHES))
def test_a_short_run_is_kept_step_by_step(values: list[float]):
    assert drawn(values) == list(enumerate(values, 1))


@given(st.integers(0, 2**32), st.integers(MOST_STRETCHES, 9 * MOST_STRETCHES))
def test_a_long_run_keeps_the_extremes_of_each_stretch_and_no_more_points_than_a_short_one(seed, length):
    dice = random.Random(seed)
    values = [dice.gauss(0, 1) for _ in range(length)]
    points = drawn(values)
    width = 2 ** max(0, math.ceil(math.log2(length / MOST_STRETCHES)))

    expected = []
    for start in range(0, length, width):
        stretch = values[start : start + width]
        ends = {stretch.index(min(stretch)), stretch.index(max(stretch))}
        expected += [(start + place + 1, stretch[place]) for place in sorted(ends)]
    assert points == expected
    assert len(points) <= 2 * MOST_STRETCHES


def test_what_is_not_a_number_and_another_attempt_break_the_curve():
    curve = Extremes()
    for step, value in enumerate([1.0, 2.0, math.nan, 3.0, math.inf, 4.0], 1):
        curve.add(step, value)
    curve.breaks()
    curve.add(5, 5.0)

    assert curve.pieces() == (((1, 1.0), (2, 2.0)), ((4, 3.0),), ((6, 4.0),), ((5, 5.0),))


def test_a_break_outlives_the_folding_of_stretches():
    curve = Extremes()
    for step in range(1, 8 * MOST_STRETCHES):
        curve.add(step, math.nan if step == 700 else float(step))

    assert len(curve.pieces()) == 2


def test_a_signal_that_is_logged_now_and_then_is_kept_as_finely_as_any():
    curve = Extremes()
    for step in range(0, 10_000, 100):
        curve.add(step, float(step))

    assert curve.pieces() == (tuple((step, float(step)) for step in range(0, 10_000, 100)),)
