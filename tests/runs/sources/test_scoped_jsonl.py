"""Scoped JSON lines: one line for each part of a trainer."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from exporter.runs.signals.record import Record
from exporter.runs.sources.json_logs import ScopedJsonl


def read(line: bytes) -> Record:
    (found,) = ScopedJsonl().parse(line)
    assert isinstance(found, Record)
    return found


def test_a_record_is_read_with_its_scope_as_stream() -> None:
    found = read(b'{"timestamp":1700000000.5,"scope":"rollout","step":120,"reward_mean":0.5}')

    assert (found.step, found.time, found.stream) == (120, 1700000000.5, "rollout")
    assert found.values == {"reward_mean": 0.5}


@pytest.mark.parametrize(
    ("scope", "stream"),
    [
        ('"trainer/actor"', "trainer/actor"),
        ('"trainer.actor"', "trainer.actor"),
        ('["trainer","actor"]', "trainer/actor"),
        ('{"trainer":"actor"}', "trainer/actor"),
        ('{"trainer":{"actor":{"rank":null}}}', "trainer/actor/rank"),
    ],
)
def test_scopes_lie_within_scopes(scope: str, stream: str) -> None:
    assert read(f'{{"scope":{scope},"step":1,"x":1}}'.encode()).stream == stream


def test_keys_that_are_grouped_once_are_flattened() -> None:
    assert read(b'{"scope":"a","step":1,"reward":{"mean":0.5}}').values == {"reward/mean": 0.5}


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("1700000000", 1700000000.0),
        ('"1700000000.25"', 1700000000.25),
        ('"2023-11-14T22:13:20Z"', 1700000000.0),
        ('"2023-11-14T22:13:20.500000+00:00"', 1700000000.5),
        ('"2023-11-15T06:13:20+08:00"', 1700000000.0),
        ("null", None),
        ("true", None),
        ("NaN", None),
        ("Infinity", None),
        ('"yesterday"', None),
        ('"0001-01-01T00:00:00+14:00"', -62135647200.0),
        ("1e300", 1e300),
        ("[1]", None),
    ],
)
def test_time_stamps_are_numbers_or_iso_8601(stamp: str, seconds: float | None) -> None:
    assert read(f'{{"timestamp":{stamp},"scope":"a","step":1,"x":1}}'.encode()).time == seconds


def test_an_iso_time_without_a_zone_is_local_time() -> None:
    expected = datetime(2023, 11, 14, 22, 13, 20).astimezone(timezone.utc).timestamp()

    assert read(b'{"timestamp":"2023-11-14T22:13:20","scope":"a","step":1}').time == expected


@pytest.mark.parametrize(
    "line",
    [
        b'{"step":1,"reward_mean":0.5}',
        b'{"scope":"a","reward_mean":0.5}',
        b'{"scope":1,"step":1}',
        b'{"scope":[],"step":1}',
        b'{"scope":{},"step":1}',
        b'{"scope":null,"step":1}',
        b'{"scope":"a","step":true}',
        b'{"scope":"a","step":1.5}',
        b'{"scope":"a","step":1e3}',
        b'{"scope":"a","step":-1}',
        b'{"scope":"a","step":1,"x":NaN',
        b'{"scope":"\\ud800","step":1,"x":NaN}',
        b'{"scope":"\xff","step":1}',
        b'{"scope":"a","step":1,"timestamp":' + b"9" * 400 + b"}",
        b'{"scope":"a","step":' + b"9" * 5000 + b"}",
        b'{"scope":"a","step":1,"x":' + b"[" * 100_000 + b"}",
        b"",
        b"NaN",
    ],
)
def test_an_invalid_record_is_a_value_error(line: bytes) -> None:
    assert not ScopedJsonl.recognises(line)
    with pytest.raises(ValueError, match="record"):
        list(ScopedJsonl().parse(line))
