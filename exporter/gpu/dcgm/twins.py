"""What was read, served once more under NVIDIA's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from exporter.exposition import header, joined, lines
from exporter.gpu.backend import NO_LABELS, Card, Reading
from exporter.gpu.dcgm.names import LINK_BYTES, LINKS, TWINS, Twin, families
from exporter.gpu.report import Report

Labels = dict[str, str]

DIGITS = 6
"""A byte is less than that of a MiB; 7 % is not to read as 7.000000000000001."""

_KNOWN = {(twin.metric, frozenset(twin.labels.items())): twin for twin in TWINS}


class Links(NamedTuple):
    """Bytes that NVLink had moved ``at`` that second, and how many a second since the reading before."""

    at: float
    total: float
    rate: float | None = None


class Twins:
    """Remembers what each GPU is called, by UUID, and what its NVLink had moved."""

    def __init__(self) -> None:
        self.labels: dict[str, Labels] = {}
        self._links: dict[str, Links] = {}

    def text(self, reports: Iterable[tuple[Card, Report]]) -> str:
        """The exposition text."""
        found: dict[str, str] = {}
        for card, report in ((card, report) for card, report in reports if report.readings):
            self.labels[card.uuid] = _labels(card, report.readings)
            label = joined(self.labels[card.uuid])
            for twin, value in self._values(card.uuid, report):
                sample = (NO_LABELS, round(value * twin.factor, DIGITS))
                for name in twin.names:
                    found[name] = found.get(name, "") + lines(name, label, [sample])
        shown = (family for twin in (*TWINS, LINKS) for family in families(twin) if family.name in found)
        return "".join(header(family) + found[family.name] for family in shown)

    def _values(self, uuid: str, report: Report) -> Iterator[tuple[Twin, float]]:
        moved = 0.0
        for metric, value, labels in report.readings:
            twin = _KNOWN.get((metric, frozenset(labels.items())))
            if twin is not None:
                yield twin, value
            moved += value if metric in LINK_BYTES else 0
        rate = self._rate(uuid, report.at, moved)
        if rate is not None:
            yield LINKS, rate

    def _rate(self, uuid: str, at: float, moved: float) -> float | None:
        """Bytes per second over NVLink, once it was read twice."""
        last = self._links.get(uuid)
        if not moved or last is None or moved < last.total:
            self._links[uuid] = Links(at, moved)
        elif at > last.at:
            self._links[uuid] = Links(at, moved, (moved - last.total) / (at - last.at))
        return self._links[uuid].rate


def _labels(card: Card, readings: Sequence[Reading]) -> Labels:
    info = next((reading.labels for reading in readings if reading.metric == "gpu_info"), {})
    return {
        "gpu": str(card.number),
        "UUID": card.uuid,
        "pci_bus_id": info.get("pci_bus_id", ""),
        "device": f"nvidia{card.number}",
        "modelName": info.get("name", ""),
    }
