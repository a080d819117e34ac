"""What the write door reads of a request is what a decoder by the book reads; all else is refused."""

from __future__ import annotations

import pytest

from exporter.door.write_request import (
    Contents,
    ForeignSeriesError,
    FormatError,
    contents,
)
from tests.door.remote_write import field, label, sample, series

NODE = ("node", "node-7")


def judged(message: bytes, node: bytes = b"node-7") -> Contents:
    return contents(message, b"node", node)


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
