"""Numbers in every spelling of a trainer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals.record import number


@pytest.mark.parametrize(
    ("raw", "value"),
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
        ("0.5 (repeated)", None),
        *((raw, math.nan) for raw in ("nan", "np.float64(nan)", "NaN", None)),
        *(
            (raw, None)
            for raw in (True, False, "True", "", "5)", "loss", "[1, 2]", "np.float64()", [1.0], {})
        ),
    ],
)
def test_a_number_is_read_in_every_spelling_of_a_trainer(raw: object, value: float | None) -> None:
    """What is not a number is None; JSON's null is NaN and not missing."""
    assert number(raw) == (value if value is None else pytest.approx(value, rel=0, nan_ok=True))


@given(st.one_of(st.floats(), st.integers(-(2**53), 2**53)))
def test_every_number_survives_its_spellings(value: float) -> None:
    for raw in (value, repr(value), f"np.float64({value!r})"):
        assert number(raw) == pytest.approx(float(value), rel=0, abs=0, nan_ok=True)


@given(st.text())
def test_no_text_raises(text: str) -> None:
    assert isinstance(number(text), float | None)
