"""What connects a GPU: NVLink and PCIe, what they carry, and what goes wrong on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Event, Semaphore, Thread
from typing import Any

from exporter.gpu.backend import NO_LABELS, ReadError, Reading, Tier
from exporter.gpu.nvml import library
from exporter.gpu.nvml.library import ALL, Batch, Call, Field, FieldId, Fields, Found, asked, number, one

_COUNT = 91
_BYTES = {"gpu_nvlink_transmit_bytes_total": (202, 138), "gpu_nvlink_receive_bytes_total": (204, 139)}
"""NVLink 5 counts bytes; the older ones KiB. A GPU answers one of them."""

_SUMS = {"crc_flit": 38, "crc_data": 45, "replay": 52, "recovery": 59, "ecc": 160}
_EACH = {"replay": 161, "recovery": 162, "crc": 163}
_FIFTH = {
    "malformed_packet": 206,
    "buffer_overrun": 207,
    "receive": 208,
    "receive_remote": 209,
    "receive_general": 210,
    "integrity": 211,
    "transmit_discard": 212,
    "link_recovery_failed": 214,
    "link_recovery": 215,
    "symbol": 221,
}
"""Errors that NVLink 5 counts. Those that it corrects itself are usual: left out."""

_MOST = 64
"""No GPU has more."""


def traffic(link: int | None = None) -> Iterator[Field]:
    """Bytes over a link, or over all."""
    scope = ALL if link is None else link
    for metric, (fifth, older) in _BYTES.items():
        ids = (FieldId(fifth, 1, scope), FieldId(older, 1 / 1024, scope))
        yield Field("nvlink", metric, ids, _labels(link), wide=True)


def error_fields(link: int | None = None) -> Iterator[Field]:
    """Errors of a link, or of all. No GPU counts all kinds: what it lacks is not worth a line."""
    scope = ALL if link is None else link
    kinds = {**(_SUMS if link is None else _EACH), **_FIFTH}
    for kind, field in kinds.items():
        labels = {"type": kind, **_labels(link)}
        yield Field("", "gpu_nvlink_errors_total", (FieldId(field, 1, scope),), labels)


def _labels(link: int | None) -> Mapping[str, str]:
    return NO_LABELS if link is None else {"link": str(link)}


class Links:
    """The NVLinks of one GPU. For one thread."""

    def __init__(self) -> None:
        self._number = Batch([FieldId(_COUNT)])
        self._resize(0)

    def _resize(self, count: int) -> None:
        self._links = range(count)
        self._traffic, self._mistakes = (
            Fields(field for link in self._links for field in fields(link))
            for fields in (traffic, error_fields)
        )

    def _count(self, handle: Any) -> list[Found]:
        (answer,) = self._number.ask(handle)
        if answer.code:
            raise library.Error(answer.code)
        self._resize(int(number(answer.value, _MOST)))
        return []

    def _states(self, handle: Any) -> Iterator[Reading]:
        found = []
        for link in self._links:
            with library.ignored(library.NOT_HERE):  # this GPU does not have all links
                found.append(bool(library.ask(handle, "GetNvLinkState", link)))
        if found:
            yield Reading("gpu_nvlink_links", found.count(True), {"state": "active"})
            yield Reading("gpu_nvlink_links", found.count(False), {"state": "inactive"})

    def _bytes(self, handle: Any) -> list[Found]:
        return self._traffic.read(handle)

    def _errors(self, handle: Any) -> list[Found]:
        return self._mistakes.read(handle)

    def calls(self, *, each: bool) -> Iterator[Call]:
        """What is asked about the links; bytes and errors of each one only if wanted."""
        yield Call("FieldValue(nvlink_count)", Tier.STATIC, self._count)
        yield Call("GetNvLinkState", Tier.SLOW, self._states)
        if each:
            yield Call("GetFieldValues(bytes of links)", Tier.FAST, self._bytes)
            yield Call("GetFieldValues(errors of links)", Tier.SLOW, self._errors)


PCIE = (
    one("GetMaxPcieLinkGeneration", Tier.STATIC, "gpu_pcie_link_generation", {"kind": "max"}),
    one("GetMaxPcieLinkWidth", Tier.STATIC, "gpu_pcie_link_width", {"kind": "max"}),
    one("GetCurrPcieLinkGeneration", Tier.SLOW, "gpu_pcie_link_generation", {"kind": "current"}),
    one("GetCurrPcieLinkWidth", Tier.SLOW, "gpu_pcie_link_width", {"kind": "current"}),
)

_KB = 1000
"""What NVML counts in; whether its KB are of 1000 bytes or of 1024 it does not say."""
_DIRECTIONS = {
    "gpu_pcie_transmit_bytes_per_second": asked("GetPcieThroughput", 0),
    "gpu_pcie_receive_bytes_per_second": asked("GetPcieThroughput", 1),
}
_END_SECONDS = 0.4


class Throughput:
    """What PCIe carries, measured in a thread of its own: NVML takes 20 ms for each direction."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._found: list[Reading] | Exception = []
        self._wanted = Semaphore(0)
        self._idle = Event()
        self._idle.set()
        self._thread: Thread | None = None

    def call(self) -> Call:
        """The reading."""
        return Call("GetPcieThroughput", Tier.FAST, self._read, lambda: self._idle.wait(_END_SECONDS))

    def _read(self, handle: Any) -> list[Reading]:
        if not self._idle.is_set():
            raise ReadError("timeout")
        # A GPU that was away comes back with another handle; what was measured before is old.
        found = self._found if handle is self._handle else []
        self._found = []
        if isinstance(found, Exception):
            raise found
        if self._thread is None:
            self._thread = Thread(target=self._run, name="pcie", daemon=True)
            self._thread.start()
        self._handle = handle
        self._idle.clear()
        self._wanted.release()
        return found

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            try:
                self._found = [Reading(name, ask(self._handle) * _KB) for name, ask in _DIRECTIONS.items()]
            except (library.Error, ReadError) as error:
                self._found = error
            self._idle.set()
