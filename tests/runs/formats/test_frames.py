"""Frames of event files: torn, damaged, too long, or no frames at all."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.summary.writer.record_writer import RecordWriter

from exporter.runs.readers import frames
from exporter.runs.readers.follow import Block

SMALL = [b"first", b"", b"a payload of more bytes than the others have", b"\0" * 20, b"\n" * 9, b"last"]


def framed(*payloads: bytes) -> bytes:
    """The payloads as TensorBoard frames them."""
    file = io.BytesIO()
    for payload in payloads:
        RecordWriter(file).write(payload)
    return file.getvalue()


def followed(data: bytes, *ends: int) -> tuple[list[bytes], Block]:
    """What is found in a file that grows to each of these sizes, and what the last call returned."""
    payloads: list[bytes] = []
    offset = 0
    found = Block()
    for end in (*ends, len(data)):
        found = frames.split(data[offset : max(end, offset)])
        offset += found.used + found.skip
        payloads += found.lines
    return payloads, found


def test_a_torn_frame_waits_for_its_rest() -> None:
    whole = framed(*SMALL)
    starts = [len(framed(*SMALL[:count])) for count in range(len(SMALL) + 1)]

    for size in range(len(whole)):
        found = frames.split(whole[:size])

        assert found.used == max(start for start in starts if start <= size)
        assert found.lines == SMALL[: starts.index(found.used)]
        assert found.broken == 0
        assert followed(whole, size)[0] == SMALL


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(0, 3000), max_size=5))
def test_it_does_not_matter_how_a_file_grows(payloads: list[bytes], ends: list[int]) -> None:
    found, last = followed(framed(*payloads), *sorted(ends))

    assert found == payloads
    assert last.broken == 0


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_costs_its_own_frame_only(flip: int) -> None:
    whole = framed(*SMALL, b"behind")

    for place in range(len(framed(*SMALL))):
        damaged = bytearray(whole)
        damaged[place] ^= flip
        hit = next(number for number in range(6) if place < len(framed(*SMALL[: number + 1])))
        found = frames.split(bytes(damaged))

        assert found.broken == 1
        # an empty frame behind damage is passed over: it looks like a hole
        lost = {hit, 1} if hit == 0 and place < frames.HEADER else {hit}
        assert found.lines == [
            *(each for number, each in enumerate(SMALL) if number not in lost),
            b"behind",
        ]


def test_a_damaged_last_frame_waits_for_what_follows() -> None:
    whole = framed(*SMALL)
    start = len(framed(*SMALL[:-1]))

    for place in range(start, len(whole)):
        late = bytearray(whole)
        late[place:] = bytes(len(whole) - place)
        found = frames.split(bytes(late))

        assert (found.lines, found.used, found.broken) == (SMALL[:-1], start, 0)


def test_a_hole_of_zeros_is_passed_once_something_follows() -> None:
    hole = framed(b"before") + bytes(100_000)

    waiting = frames.split(hole)
    passed = frames.split(hole + framed(b"behind"))

    assert (waiting.lines, waiting.used, waiting.broken) == ([b"before"], len(framed(b"before")), 0)
    assert (passed.lines, passed.used, passed.broken) == ([b"before", b"behind"], len(hole) + 22, 1)


def test_endless_damage_is_given_up_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LIMIT", 100)
    for size in range(150, 350):
        file = b"\xab" * size + framed(b"behind")
        payloads, offset = [], 0
        while offset < len(file):
            found = frames.split(file[offset : offset + 100])
            assert found.used
            payloads += found.lines
            offset += found.used

        assert payloads == [b"behind"]


@pytest.mark.parametrize("more", [0, 1, 3 * frames.LIMIT])
@pytest.mark.slow
def test_a_frame_that_is_too_long_is_jumped_over(more: int) -> None:
    image = bytes(frames.LIMIT - frames.HEADER - frames.FOOTER + more)
    file = framed(b"before", image, b"behind")

    whole = frames.split(file)
    start = frames.split(file[:100])
    behind = frames.split(file[start.used + start.skip :])

    assert (whole.lines, whole.too_long, whole.used) == ([b"before", b"behind"], 1, len(file))
    assert (start.lines, start.too_long, start.used) == ([b"before"], 1, 100)
    assert (behind.lines, behind.broken) == ([b"behind"], 0)


@pytest.mark.slow
def test_the_longest_frame_is_read_and_does_not_hold_up_a_reader_if_damaged() -> None:
    longest = bytes(frames.LIMIT - frames.HEADER - frames.FOOTER - 1)
    file = bytearray(framed(longest, b"behind"))

    assert frames.split(bytes(file[: frames.LIMIT])).lines == [longest]

    file[1000] = 1
    found = frames.split(bytes(file[: frames.LIMIT]))
    assert (found.used, found.broken) == (frames.LIMIT - 1, 1)


@given(st.binary(max_size=400))
def test_arbitrary_bytes_hold_no_frame_and_are_not_skipped(data: bytes) -> None:
    found = frames.split(data)

    assert (found.lines, found.used, found.skip) == ([], 0, 0)


@given(st.binary(max_size=200), st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=5))
def test_whole_frames_behind_arbitrary_bytes_are_found(noise: bytes, payloads: list[bytes]) -> None:
    found = frames.split(noise + framed(*payloads))

    assert found.lines == payloads
    assert found.broken == bool(noise)
