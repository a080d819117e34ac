"""verl's file logger."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.signals.record import Record
from exporter.runs.sources.json_logs import VerlJsonl
from tests.runs.lines import verl_json


def read(line: bytes) -> Record:
    (found,) = VerlJsonl().parse(line)
    assert isinstance(found, Record)
    return found


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


@given(st.integers(0, 10**9), st.dictionaries(st.text(min_size=1), st.floats()))
def test_what_verl_writes_is_what_is_read(step: int, data: dict[str, float]) -> None:
    found = read(verl_json(step, data).encode())

    assert found.step == step
    assert found.values == {key: value if math.isfinite(value) else None for key, value in data.items()}
