"""What the write door reads of a request is what a decoder by the book reads; all else is refused."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.door import write_request
from exporter.door.write_request import (
    MOST_PLAIN,
    Contents,
    ForeignSeriesError,
    FormatError,
    SizeError,
    contents,
    pack,
    unpack,
)
from tests.door.remote_write import field, label, sample, series, varint

NODE = ("node", "node-7")
TEXT = st.text(min_size=1, max_size=200)
OTHERS = st.lists(st.tuples(TEXT.filter(lambda name: name != "node"), TEXT), max_size=6)
SAMPLES = st.lists(st.tuples(st.floats(), st.integers(1, 1 << 62)), max_size=4)


def judged(message: bytes, node: bytes = b"node-7") -> Contents:
    return contents(message, b"node", node)


@given(st.lists(st.tuples(OTHERS, SAMPLES, st.integers(0, 6)), max_size=5))
def test_series_of_the_own_node_are_counted(batch):
    message = b""
    for others, samples, place in batch:
        labels = [*others[:place], NODE, *others[place:]]
        message += series(labels, *(sample(*each) for each in samples))
    stamps = [stamp for _, samples, _ in batch for _, stamp in samples]

    found = judged(message)

    assert found == (len(stamps), max(stamps) / 1000 if stamps else None)


@given(OTHERS, st.one_of(st.none(), TEXT.filter(lambda value: value != "node-7")), st.integers(0, 6))
def test_a_series_of_another_node_or_of_none_is_refused(others, node, place):
    labels = [*others[:place], *([("node", node)] if node else []), *others[place:]]
    with pytest.raises(ForeignSeriesError):
        judged(series([NODE]) + series(labels, sample(1, 1)))


@pytest.mark.parametrize(
    "extra",
    [
        label("node", "node-8"),
        label("node", "node-7"),
        label("node", ""),
        label("node", "x" * 300),
        field(1, field(1, b"node")),  # without a value
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_second_label_node_is_refused(extra, first):
    both = (extra, label(*NODE)) if first else (label(*NODE), extra)
    with pytest.raises(ForeignSeriesError):
        judged(field(1, b"".join(both)))


NAME, VALUE, OTHER = field(1, b"node"), field(2, b"node-7"), field(2, b"node-8")


@pytest.mark.parametrize(
    "hidden",
    [
        field(1, OTHER + NAME),  # the other order
        field(1, field(1, b"x") + OTHER + NAME),  # the last name counts
        field(1, NAME + VALUE + OTHER),  # the last value counts
        field(1, b"\x0a\x84\x00node" + OTHER),  # a length that is longer than it must be
        b"\x8a\x00" + field(1, NAME + OTHER)[1:],  # so with the number of a field
        field(1, NAME + OTHER + field(3, b"")),
        field(5, NAME + OTHER),
        b"\x0b" + NAME + OTHER + b"\x0c",  # a group
        field(2, b"\x08\x01"),
        field(2, sample(1, 1)[2:] + b"\x10\x01"),
    ],
)
def test_other_ways_to_write_a_label_or_a_sample_are_refused(hidden):
    with pytest.raises((FormatError, ForeignSeriesError)):
        judged(field(1, label(*NODE) + hidden))


def test_a_label_in_a_value_is_not_the_label():
    value = label(*NODE).decode()
    with pytest.raises(ForeignSeriesError):
        judged(series([("a", value), ("node", "node-8")]))
    assert judged(series([("a", label("node", "node-8").decode()), NODE], sample(1, 5))) == (1, 0.005)


def test_what_senders_leave_out_and_other_parts_are_taken():
    zero = field(2, b"\x10" + varint(5000))  # a number of 0 is left out
    exemplar, histogram = field(3, label("trace", "x")), field(4, b"\x08\x01")
    message = field(1, label(*NODE) + field(1, field(1, b"empty")) + zero + exemplar + histogram)
    assert judged(message + field(3, b"\x08\x01")) == (2, 5.0)
    assert judged(b"") == (0, None)


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_has_no_foreign_series(garbage):
    for data in (garbage, field(1, garbage), field(1, label(*NODE) + garbage)):
        try:
            judged(data)
        except (FormatError, ForeignSeriesError):
            continue


@given(st.data())
def test_half_a_request_is_refused(data):
    message = series([NODE, ("a", "b" * 200)], sample(1, 1 << 40))
    half = data.draw(st.integers(1, len(message) - 1))
    with pytest.raises((FormatError, ForeignSeriesError)):
        judged(message[:half])


def test_a_long_number_takes_no_long_time():
    begun = time.process_time()
    with pytest.raises(FormatError):
        judged(b"\x0a" + b"\x80" * (1 << 20))
    assert time.process_time() - begun < 1


@given(st.binary(max_size=5000))
def test_what_was_packed_is_unpacked(message):
    assert unpack(pack(message)) == message


@given(st.binary(max_size=300))
def test_what_is_not_snappy_is_refused(garbage):
    try:
        unpacked = unpack(garbage)
    except (FormatError, SizeError):
        return
    assert unpack(pack(unpacked)) == unpacked


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch):
    def unpacked(*_, **__):
        raise AssertionError

    monkeypatch.setattr(write_request.snappy, "decompress_raw", unpacked)
    for length in (MOST_PLAIN + 1, 1 << 32, (1 << 63) + 1):
        with pytest.raises(SizeError):
            unpack(varint(length) + b"\xfe\x01\x00" * 1000)
    with pytest.raises(FormatError):
        unpack(b"\xff" * 1000)
