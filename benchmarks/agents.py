"""What the write door costs a hub: how fast it checks what agents write."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator

from benchmarks.measure import table
from exporter.door import write_request
from tests.door.remote_write import sample, series

PER_REQUEST, NODES, GPUS, PER_GPU = 2000, 64, 8, 120
"""Samples of one request as Prometheus sends it, and a cluster with so many series of each GPU."""
REQUESTS = 20


@table("work", "series/s of one core", "% of a core for 61,440 series every 15 s")
def agents() -> Iterator[tuple[object, ...]]:
    """Requests of an agent with ten labels a series: unpacked, checked, packed anew; and a naive decoder."""
    message = b"".join(series(_labels(number), sample(1.5, 1 << 40)) for number in range(PER_REQUEST))
    body = write_request.pack(message)
    every = NODES * GPUS * PER_GPU / 15

    def all_of_it() -> None:
        unpacked = write_request.unpack(body)
        write_request.contents(unpacked, b"node", b"node-7")
        write_request.pack(unpacked)

    for title, work in (
        ("the write endpoint: all of it", all_of_it),
        ("its walk alone", lambda: write_request.contents(message, b"node", b"node-7")),
        ("a decoder that makes a dict of each series", lambda: naive(message)),
    ):
        used = _processor_seconds(work) / REQUESTS
        rate = PER_REQUEST / used
        yield title, f"{rate:,.0f}", f"{every / rate * 100:.1f}"


def naive(message: bytes) -> list[tuple[dict[str, str], list[tuple[float, int]]]]:
    """Every series with its labels and samples, decoded by the book."""
    found = []
    for body in _fields(message):
        labels, samples = {}, []
        for number, value in _numbered(body):
            if number == 1:
                name, text = _fields(value)
                labels[name.decode()] = text.decode()
            else:
                samples.append((struct.unpack("<d", value[1:9])[0], _varint(value, 10)[0]))
        found.append((labels, samples))
    return found


def _fields(data: bytes) -> list[bytes]:
    return [value for _, value in _numbered(data)]


def _numbered(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        size, at = _varint(data, at)
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _labels(number: int) -> list[tuple[str, str]]:
    gpu = number % GPUS
    return sorted(
        {
            "__name__": f"gpu_metric_{number // GPUS}",
            "cluster": "training",
            "gpu": str(gpu),
            "instance": "node-7:9400",
            "job": "gpu",
            "model": "NVIDIA H100 80GB HBM3",
            "node": "node-7",
            "pci": f"00000000:{gpu:02}:00.0",
            "uuid": f"GPU-{gpu:032}",
            "zone": "a",
        }.items()
    )


def _processor_seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    for _ in range(REQUESTS):
        work()
    return time.process_time() - begun
