"""verl's file logger."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals.record import Record, number
from exporter.runs.sources.json_logs import VerlJsonl
from tests.runs.lines import verl_json


def read(line: bytes) -> Record:
    (found,) = VerlJsonl().parse(line)
    assert isinstance(found, Record)
    return found


def test_a_record_is_read() -> None:
    found = read(b'{"step":12,"data":{"actor/pg_loss":0.0018432,"training/global_step":12}}')

    assert (found.step, found.time, found.stream) == (12, None, "")
    assert found.values == {"actor/pg_loss": 0.0018432, "training/global_step": 12}


def test_null_is_not_finite_and_a_missing_key_is_missing() -> None:
    found = read(b'{"step":12,"data":{"critic/rewards/max":null}}')

    value = number(found.values["critic/rewards/max"])
    assert value is not None
    assert math.isnan(value)
    assert "critic/rewards/mean" not in found.values


@pytest.mark.parametrize("end", [b"", b"\r", b"  "])
def test_line_ends_of_other_systems_do_not_matter(end: bytes) -> None:
    assert read(b'{"step":12,"data":{"a":1}}' + end).step == 12


@pytest.mark.parametrize(
    "line",
    [
        b'{"step":12,"data":{"actor/pg_lo',
        b'{"step":12}',
        b'{"step":"12","data":{}}',
        b'{"step":12.5,"data":{}}',
        b'{"step":true,"data":{}}',
        b'{"step":-1,"data":{}}',
        b'{"step":18446744073709551615,"data":{}}',
        b'{"step":12,"data":[1,2]}',
        b'{"step":12,"data":{"\xff":1}}',
        b"[1, 2]",
        b"",
        b"{" * 5000,
    ],
)
def test_an_invalid_record_is_a_value_error(line: bytes) -> None:
    assert not VerlJsonl.recognises(line)
    with pytest.raises(ValueError, match="record"):
        list(VerlJsonl().parse(line))


@given(st.binary(max_size=200))
def test_random_bytes_are_a_record_or_a_value_error(line: bytes) -> None:
    with suppress(ValueError):
        assert read(line).step >= 0


@given(st.integers(0, 10**9), st.dictionaries(st.text(min_size=1), st.floats()))
def test_what_verl_writes_is_what_is_read(step: int, data: dict[str, float]) -> None:
    found = read(verl_json(step, data).encode())

    assert found.step == step
    assert found.values == {key: value if math.isfinite(value) else None for key, value in data.items()}
