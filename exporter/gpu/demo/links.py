"""What goes to and from a simulated card."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.demo import sickness
from exporter.gpu.demo.moment import Moment
from exporter.gpu.demo.part import Part, each

LANES = 16.0
KIB = 1024
"""The driver counts NVLink's bytes in these."""
REPLAY_OF, RECOVERY_OF = 10, 100
"""How many bad packets it takes."""
ALL_LINKS_ERRORS = ("crc_flit", "crc_data", "replay", "recovery", "ecc")
EACH_LINK_S_ERRORS = ("crc", "replay", "recovery")
JOINED = 3


def _pcie_link(moment: Moment) -> Iterator[Reading]:
    generation = float(moment.profile.pcie)
    yield from each("gpu_pcie_link_generation", "kind", dict.fromkeys(("current", "max"), generation))
    yield from each("gpu_pcie_link_width", "kind", dict.fromkeys(("current", "max"), LANES))


def _pcie_rate(moment: Moment) -> Iterator[Reading]:
    if moment.profile.pcie_sampled and not moment.extras.pcie:
        return
    rate = moment.phase.pcie * 2 ** (moment.profile.pcie - 5)
    yield Reading("gpu_pcie_transmit_bytes_per_second", 0.4 * rate // 1)
    yield Reading("gpu_pcie_receive_bytes_per_second", rate // 1)


def _replays(_: Moment) -> Iterator[Reading]:
    yield Reading("gpu_pcie_replays_total", 0)


def _nvlink(moment: Moment) -> Iterator[Reading]:
    links = moment.profile.links
    yield from each("gpu_nvlink_links", "state", {"active": float(links), "inactive": 0.0})
    sent = moment.total(lambda phase: phase.nvlink) * moment.profile.nvlink
    labels = _labels(moment)
    for direction in ("transmit", "receive"):
        for label in labels:
            carried = sent / len(labels) // KIB * KIB
            yield Reading(f"gpu_nvlink_{direction}_bytes_total", carried, label)


def _labels(moment: Moment) -> list[dict[str, str]]:
    """All links together, or each by itself."""
    return [{"link": str(link)} for link in range(moment.profile.links)] if moment.extras.links else [{}]


def _nvlink_errors(moment: Moment) -> Iterator[Reading]:
    """The first link is the bad one. Of a single link its driver tells fewer kinds."""
    labels = _labels(moment)
    kinds = EACH_LINK_S_ERRORS if moment.extras.links else ALL_LINKS_ERRORS
    for label in labels:
        bad = sickness.link_errors(moment) if label is labels[0] else 0
        counts = {"replay": bad // REPLAY_OF, "recovery": bad // RECOVERY_OF, kinds[0]: bad}
        for kind in kinds:
            yield Reading("gpu_nvlink_errors_total", counts.get(kind, 0), {"type": kind, **label})


def _fabric(_: Moment) -> Iterator[Reading]:
    yield Reading("gpu_fabric_state", JOINED)


PARTS = (
    Part("GetCurrPcieLinkGeneration", Tier.SLOW, _pcie_link),
    Part("GetPcieThroughput", Tier.FAST, _pcie_rate),
    Part("GetPcieReplayCounter", Tier.SLOW, _replays),
    Part("GetNvLinkState", Tier.FAST, _nvlink),
    Part("GetNvLinkErrorCounter", Tier.SLOW, _nvlink_errors),
    Part("GetGpuFabricInfo", Tier.SLOW, _fabric),
)
