"""SwanLab's local log: one that SwanLab itself wrote, and any that its writer may leave."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.formats import recognise_first
from exporter.runs.formats.protobuf import EIGHT_BYTES, SIZED, VARINT, coded, key
from exporter.runs.formats.trackers import SwanLab
from exporter.runs.signals.record import Ended, Event, Record
from tests.runs.conftest import Watching

MADE = Path(__file__).parents[2] / "logs" / "swanlab" / "run.swanlab"


def sized(number: int, value: bytes) -> bytes:
    return coded(key(number, SIZED)) + coded(len(value)) + value


def scalar(name: str, step: int, number: float, seconds: int = 1_790_000_000) -> bytes:
    time = sized(4, coded(key(1, VARINT)) + coded(seconds))
    value = sized(5, coded(key(1, EIGHT_BYTES)) + struct.pack("<d", number))
    return sized(13, sized(1, name.encode()) + coded(key(2, VARINT)) + coded(step) + time + value)


def finish(state: int) -> bytes:
    return sized(11, coded(key(1, VARINT)) + coded(state))


def read(*rows: bytes) -> list[Event]:
    source = SwanLab()
    return [event for row in rows for event in source.parse(row)] + list(source.flush())


# a log of SwanLab's own


def test_a_growing_log_is_followed_wherever_its_writer_s_buffer_ends(folder: Path, watched: Watching) -> None:
    page, data, log = watched(), MADE.read_bytes(), folder / "run-abc.swanlab"
    for end in range(0, len(data), 97):
        log.write_bytes(data[:end])
        found = page.discover()
    log.write_bytes(data)
    found = page.discover()

    assert found.value("rl_records_total", run="run-abc") == 12
    assert found.value("rl_restarts_total", run="run-abc") == 0


# any


def test_the_end_says_how_it_ended() -> None:
    assert [read(finish(state)) for state in range(4)] == [
        [],
        [Ended("finished")],
        [Ended("failed")],
        [Ended("failed")],
    ]


def test_the_load_of_the_machine_is_not_a_step() -> None:
    assert read(scalar("__swanlab__.cpu.pct", 900, 50.0)) == []
    assert recognise_first([scalar("__swanlab__.cpu.pct", 900, 50.0)], "swanlab") is None


def test_a_step_that_no_trainer_made_is_refused() -> None:
    with pytest.raises(ValueError, match="step number"):
        read(scalar("reward", 2**63, 0.5))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reward", "kl", "entropy"]), st.integers(0, 50), st.floats(allow_nan=False)
        ),
        max_size=40,
    )
)
def test_every_scalar_is_in_the_record_of_its_step(logged: list[tuple[str, int, float]]) -> None:
    found = [event for event in read(*(scalar(*each) for each in logged)) if isinstance(event, Record)]

    assert [(name, record.step, value) for record in found for name, value in record.values.items()] == logged
