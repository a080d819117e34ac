"""SwanLab's local log: one that SwanLab itself wrote, and any that its writer may leave."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.readers.follow import Follower
from exporter.runs.readers.frames import (
    FIRST,
    FULL,
    LAST,
    LEVELDB_BLOCK,
    LEVELDB_HEADER,
    MIDDLE,
    LevelDbRecords,
)
from exporter.runs.signals.record import Ended, Event, Record
from exporter.runs.sources import recognise_first
from exporter.runs.sources.protobuf import EIGHT_BYTES, SIZED, VARINT, coded, key
from exporter.runs.sources.trackers import SwanLab
from tests.runs.conftest import Watching

MADE = Path(__file__).parents[2] / "logs" / "swanlab" / "run.swanlab"
HEADER = b":SWL" + struct.pack("<HB", 0xE1D6, 2)


class Store:
    """Writes records as SwanLab's ``DataStoreWriter`` does."""

    def __init__(self) -> None:
        self.data = HEADER

    def add(self, record: bytes) -> None:
        first = True
        while first or record:
            left = LEVELDB_BLOCK - len(self.data) % LEVELDB_BLOCK
            if left < 7:
                self.data += bytes(left)
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = (FIRST if record else FULL) if first else (MIDDLE if record else LAST)
            checksum = zlib.crc32(part, zlib.crc32(bytes([kind])))
            self.data += struct.pack("<IHB", checksum, len(part), kind) + part
            first = False


def sized(number: int, value: bytes) -> bytes:
    return coded(key(number, SIZED)) + coded(len(value)) + value


def scalar(name: str, step: int, number: float, seconds: int = 1_790_000_000) -> bytes:
    time = sized(4, coded(key(1, VARINT)) + coded(seconds))
    value = sized(5, coded(key(1, EIGHT_BYTES)) + struct.pack("<d", number))
    return sized(13, sized(1, name.encode()) + coded(key(2, VARINT)) + coded(step) + time + value)


def finish(state: int) -> bytes:
    return sized(11, coded(key(1, VARINT)) + coded(state))


def split(data: bytes) -> list[bytes]:
    return LevelDbRecords().split(data, full=False).lines


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


@given(st.lists(st.binary(max_size=80_000) | st.binary(max_size=40), max_size=12), st.integers(0, 10**6))
def test_records_of_any_size_come_back_whole_wherever_the_file_ends(records: list[bytes], cut: int) -> None:
    store, ends = Store(), [LEVELDB_HEADER]
    for record in records:
        store.add(record)
        ends.append(len(store.data))
    cut %= len(store.data) + 1
    framing = LevelDbRecords()
    first = framing.split(store.data[:cut], full=False)
    second = framing.split(store.data[first.used :], full=False)

    assert first.lines == records[: sum(end <= cut for end in ends[1:])]
    assert first.lines + second.lines == records
    assert (first.broken, second.broken) == (0, 0)


@pytest.mark.slow
@given(st.integers(LEVELDB_HEADER, LEVELDB_BLOCK - 1))
def test_a_damaged_byte_costs_its_block_and_no_other(place: int) -> None:
    store = Store()
    for number in range(3000):
        store.add(b"%06d" % number * 5)
    data = bytearray(store.data)
    data[place] ^= 0xFF
    found = split(bytes(data))
    whole = split(store.data)

    assert set(found) <= set(whole)
    assert [row for row in whole if row >= found[-1]] == [found[-1]]
    assert len(whole) - len(found) <= LEVELDB_BLOCK // 37 + 2


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


def test_a_record_larger_than_what_is_read_at_a_time_is_passed_over(tmp_path: Path) -> None:
    store = Store()
    store.add(scalar("reward", 1, 0.5))
    store.add(bytes(5 * 1024 * 1024))
    store.add(scalar("reward", 2, 0.6))
    path = tmp_path / "run.swanlab"
    path.write_bytes(store.data)
    follower, rows, too_long = Follower(path, LevelDbRecords()), [], 0
    while block := follower.poll(0.0):
        rows += block.lines
        too_long += block.too_long

    assert [event.step for event in read(*rows) if isinstance(event, Record)] == [1, 2]
    assert too_long > 0
