"""NVLink: which links are up, what they carried, and what went wrong on them.

Either all links together or, on request, each by itself: never both, so that a sum is a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from exporter.gpu.backend import NO_LABELS, Reading, Tier
from exporter.gpu.nvml import errors, library
from exporter.gpu.nvml.batch import ALL, Batch, Way
from exporter.gpu.nvml.fields import Field, Fields
from exporter.gpu.nvml.probes import Call, Found, number

_COUNT = 91
_BYTES = {
    "gpu_nvlink_transmit_bytes_total": (202, 138),
    "gpu_nvlink_receive_bytes_total": (204, 139),
}
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
"""Errors that NVLink 5 counts. Those that it corrects on the way are as usual as the weather: left out."""


_MOST = 64
"""No GPU has more."""


def traffic(link: int | None = None) -> Iterator[Field]:
    """Bytes over a link, or over all."""
    scope = ALL if link is None else link
    for metric, (fifth, older) in _BYTES.items():
        ways = (Way(fifth, 1, scope), Way(older, 1 / 1024, scope))
        yield Field("nvlink", metric, ways, _labels(link), wide=True)


def mistakes(link: int | None = None) -> Iterator[Field]:
    """Errors of a link, or of all. No GPU counts all kinds: what it lacks is not worth a line."""
    scope = ALL if link is None else link
    kinds = {**(_SUMS if link is None else _EACH), **_FIFTH}
    for kind, which in kinds.items():
        labels = {"type": kind, **_labels(link)}
        yield Field("", "gpu_nvlink_errors_total", (Way(which, 1, scope),), labels)


def _labels(link: int | None) -> Mapping[str, str]:
    return NO_LABELS if link is None else {"link": str(link)}


class Links:
    """The links of one GPU. For one thread."""

    def __init__(self) -> None:
        self._ask_count = Batch([Way(_COUNT)])
        self._learn(0)

    def _learn(self, count: int) -> None:
        self._links = range(count)
        self._traffic, self._mistakes = (
            Fields(field for link in self._links for field in fields(link)) for fields in (traffic, mistakes)
        )

    def _count(self, handle: Any) -> list[Found]:
        (answer,) = self._ask_count.ask(handle)
        if answer.code:
            raise library.Error(answer.code)
        self._learn(int(number(answer.value, _MOST)))
        return []

    def _states(self, handle: Any) -> Iterator[Reading]:
        found = [state for link in self._links for state in _state(handle, link)]
        for state in ("active", "inactive") if found else ():
            yield Reading("gpu_nvlink_links", found.count(state), {"state": state})

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


def _state(handle: Any, link: int) -> Iterator[str]:
    """Whether a link is up; nothing for one that this GPU does not have."""
    try:
        yield "active" if library.ask(handle, "GetNvLinkState", link) else "inactive"
    except library.Error as error:
        if error.value not in errors.NOT_HERE:
            raise
