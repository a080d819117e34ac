from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals.record import number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        ("7", 7.0),
        ("1e-06", 1e-06),
        ("-0.000", 0.0),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("np.float64(0.1312)", 0.1312),
        ("np.float32(-1e-3)", -0.001),
        ("np.int64(7)", 7.0),
        ("np.float64(inf)", math.inf),
        ("0.5 [repeated 3x across cluster]", 0.5),
    ],
)
def test_numbers_are_read_in_every_spelling_of_verl(text: str, value: float) -> None:
    assert number(text) == value


@pytest.mark.parametrize("text", ["nan", "np.float64(nan)", "NaN"])
def test_nan_is_a_number_that_is_not_finite(text: str) -> None:
    value = number(text)

    assert value is not None
    assert math.isnan(value)


def test_null_is_not_finite_and_not_missing() -> None:
    value = number(None)

    assert value is not None
    assert math.isnan(value)


@pytest.mark.parametrize(
    "raw", [True, False, "True", "False", "", "loss", "[1, 2]", "np.float64()", [1.0], {}]
)
def test_what_is_not_a_number_is_none(raw: object) -> None:
    assert number(raw) is None


@given(st.one_of(st.floats(), st.integers(-(2**53), 2**53)))
def test_every_number_survives_its_spellings(value: float) -> None:
    for raw in (value, repr(value), f"np.float64({value!r})"):
        found = number(raw)
        assert found == value or (math.isnan(value) and found is not None and math.isnan(found))


@given(st.text())
def test_no_text_raises(text: str) -> None:
    assert isinstance(number(text), float | None)
