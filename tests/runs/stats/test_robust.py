"""The usual size of a gradient norm: zeros and spikes do not move it."""

from __future__ import annotations

import pytest

from exporter.runs.stats.statistics import level, spread

STEADY = [1.0, 1.2] * 32


@pytest.mark.parametrize("spikes", [1, 3, 6])
def test_a_few_spikes_count_for_little_however_high_they_are(spikes: int) -> None:
    values = STEADY[spikes:] + [1e6] * spikes
    assert 1.1 < (level(values) or 0) < 1.1 * 64 / (64 - 4 * spikes) + 0.1


def test_steps_without_a_gradient_do_not_lower_the_level() -> None:
    assert level([0.0] * 40 + STEADY[:24]) == pytest.approx(1.1)
    assert spread([0.0] * 40 + STEADY[:24]) == pytest.approx(spread(STEADY[:24]))


def test_steps_with_next_to_no_gradient_do_not_take_the_level_with_them() -> None:
    assert (level([1e-6] * 40 + STEADY[:24]) or 0) > 0.4


def test_a_few_values_have_no_level() -> None:
    assert level([0.0] * 60 + [1.0] * 9) is None
    assert spread([0.0] * 60 + [1.0] * 9) is None


def test_a_level_that_never_changes_has_no_spread() -> None:
    assert (level([2.0] * 64), spread([2.0] * 64)) == (2.0, 0.0)
