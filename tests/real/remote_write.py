"""A sender of Prometheus' remote write 1.0 whose samples may have any time."""

from __future__ import annotations

import ssl
import struct
import urllib.request
from collections.abc import Iterable, Mapping

from exporter.credentials import authorization

Series = tuple[Mapping[str, str], Iterable[tuple[float, float]]]
"""Labels, and samples: Unix seconds and value."""


def send(
    url: str,
    series: Iterable[Series],
    *,
    timeout: float = 30,
    login: tuple[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> None:
    """Send samples in one request; an answer other than 2xx raises ``urllib.error.HTTPError``.

    Args:
        url: Where to.
        series: What is sent.
        timeout: Seconds that the answer may take.
        login: User and password.
        context: Whom to trust, for a URL of https.
    """
    request = urllib.request.Request(
        url,
        snappy(write_request(series)),
        headers={
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
            **({"Authorization": authorization(login[1], login[0])} if login else {}),
        },
    )
    with urllib.request.urlopen(request, timeout=timeout, context=context):
        pass


def write_request(series: Iterable[Series]) -> bytes:
    """Return the message ``prometheus.WriteRequest``."""
    message = b""
    for labels, samples in series:
        body = b""
        for name, value in sorted(labels.items()):
            pair = _bytes(1, name.encode()) + _bytes(2, value.encode())
            body += _bytes(1, pair)
        for seconds, number in samples:
            body += _bytes(2, b"\x09" + struct.pack("<d", number) + b"\x10" + _varint(round(seconds * 1000)))
        message += _bytes(1, body)
    return message


def snappy(data: bytes) -> bytes:
    """Return data as a snappy block that compresses nothing: literals of at most 60 bytes."""
    chunks = (data[at : at + 60] for at in range(0, len(data), 60))
    return _varint(len(data)) + b"".join(bytes([(len(chunk) - 1) << 2]) + chunk for chunk in chunks)


def _bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
