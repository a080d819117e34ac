"""Reads Prometheus' remote write 1.0, as far as the write door must check it.

A body is one block of snappy with the protobuf message ``prometheus.WriteRequest``. Only the form in which
all senders write labels is taken: the name before the value, each at most once, lengths at most as long as
they must be. So a request cannot mean something else to Prometheus.
"""

from __future__ import annotations

from typing import NamedTuple

from cramjam import DecompressionError, snappy

MOST_PLAIN = 32 << 20
"""Bytes of a request that is unpacked: senders put 2,000 samples into one, of some 300 bytes each."""

_LABEL = _SERIES = _NAME = 0x0A
_VALUE = _SAMPLE = 0x12
_NUMBER, _TIMESTAMP = 0x09, 0x10
_METADATA = 0x1A
_EXEMPLAR, _HISTOGRAM = 0x1A, 0x22


class FormatError(ValueError):
    """Raised for an invalid write request; the text says where it is wrong."""


class SizeError(ValueError):
    """Raised for a body that unpacks to more than ``MOST_PLAIN`` bytes."""


class ForeignSeriesError(ValueError):
    """Raised for a series that does not have the label that it must have; the text names its value."""


class Contents(NamedTuple):
    """What a request holds: its samples, histograms included, and Unix seconds of the newest number.

    ``newest`` is ``None`` where it has no sample that is a number.
    """

    samples: int
    newest: float | None


def unpack(body: bytes) -> bytes:
    """Return the message in a block of snappy, of which the length is known before anything is unpacked.

    Raises:
        FormatError: It is not a valid block.
        SizeError: Its message is too long.
    """
    try:
        length, _ = _varint(body, 0, len(body))
    except IndexError:
        raise FormatError("no snappy length") from None
    if length > MOST_PLAIN:
        raise SizeError
    try:
        return bytes(snappy.decompress_raw(body, output_len=length))
    except (DecompressionError, ValueError):
        raise FormatError("not a snappy block") from None


def pack(message: bytes) -> bytes:
    """Return a message as a block of snappy."""
    return bytes(snappy.compress_raw(message))


def contents(message: bytes, name: bytes, value: bytes) -> Contents:
    """Return what a message holds, of which each series must have one label with this name and value.

    Args:
        message: ``prometheus.WriteRequest``.
        name: Of the label, less than 128 bytes.
        value: Of the label, less than 128 bytes.

    Raises:
        FormatError: It is not a write request in the form that all senders write.
        ForeignSeriesError: A series lacks the label, or has it with another value.
    """
    own = bytes((_NAME, len(name))) + name + bytes((_VALUE, len(value))) + value
    at, end, samples, newest = 0, len(message), 0, 0
    try:
        while at < end:
            field = message[at]
            size = message[at + 1]
            at += 2
            if size > 0x7F:
                size, at = _varint(message, at - 1, end)
            if at + size > end:
                raise FormatError("a field is longer than the request")
            if field == _SERIES:
                count, latest = _series(message, at, at + size, name, own)
                samples += count
                newest = max(newest, latest)
            elif field != _METADATA:
                raise FormatError("an unknown field")
            at += size
    except IndexError:
        raise FormatError("a field is truncated") from None
    return Contents(samples, newest / 1000 if newest else None)


def _series(  # noqa: C901  (a function for each label would take longer than the label)
    message: bytes, at: int, end: int, name: bytes, own: bytes
) -> tuple[int, int]:
    """Check one series; returns its samples and the newest time stamp in milliseconds, 0 without one."""
    samples, newest, found = 0, 0, False
    begins = own[: 2 + len(name)]
    length = len(own)
    while at < end:
        field = message[at]
        size = message[at + 1]
        at += 2
        if size > 0x7F:
            size, at = _varint(message, at - 1, end)
        stop = at + size
        if stop > end:
            raise FormatError("a field is longer than its series")
        if field == _LABEL:
            # Most of the time goes here: ten labels for each sample.
            if message.startswith(begins, at):
                if size != length or found or not message.startswith(own, at):
                    value = message[at + len(begins) : stop]
                    raise ForeignSeriesError(repr(value[2:66].decode("utf-8", "backslashreplace")))
                found = True
            else:
                # A name and a value of less than 128 bytes, or a longer way.
                middle = at + 2 + message[at + 1]
                if (
                    message[at] != _NAME
                    or middle + 2 > stop
                    or message[middle] != _VALUE
                    or middle + 2 + message[middle + 1] != stop
                    or message[at + 1] > 0x7F
                    or message[middle + 1] > 0x7F
                ):
                    _long_label(message, at, stop)
        elif field == _SAMPLE:
            samples += 1
            newest = max(newest, _timestamp(message, at, stop))
        elif field == _HISTOGRAM:
            samples += 1
        elif field != _EXEMPLAR:
            raise FormatError("an unknown field of a series")
        at = stop
    if not found:
        raise ForeignSeriesError("none")
    return samples, newest


def _long_label(message: bytes, at: int, end: int) -> None:
    """Check a label with a long name or value, or with none: the fields that are there, in their order."""
    for expected in (_NAME, _VALUE):
        if at < end and message[at] == expected:
            size, begins = _varint(message, at + 1, end)
            at = begins + size
            if at > end:
                break
    if at != end:
        raise FormatError("a label that is not one name and one value")


def _timestamp(message: bytes, at: int, end: int) -> int:
    """Return a sample's time stamp; a number of 0 and a time of 0 are left out."""
    if at < end and message[at] == _NUMBER:
        at += 9
    stamp = 0
    if at < end and message[at] == _TIMESTAMP:
        stamp, at = _varint(message, at + 1, end)
    if at != end:
        raise FormatError("a sample that is not a number and a time stamp")
    return stamp if stamp < 1 << 63 else 0  # before 1970


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a whole number and where it ends.

    Raises:
        FormatError: It is longer than it must be, or than 64 bits.
        IndexError: The data end within it.
    """
    number = shift = 0
    while True:
        if at >= end:
            raise IndexError
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise FormatError("a number of more than 64 bits")
    if shift and not byte:
        raise FormatError("a number with an overlong encoding")
    return number, at
