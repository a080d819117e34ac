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
    for direction in ("transmit", "receive"):
        yield Reading(f"gpu_nvlink_{direction}_bytes_total", sent // KIB * KIB)


def _nvlink_errors(moment: Moment) -> Iterator[Reading]:
    bad = sickness.link_errors(moment)
    counts = {"crc_flit": bad, "crc_data": 0, "replay": bad // REPLAY_OF, "recovery": bad // RECOVERY_OF}
    return each("gpu_nvlink_errors_total", "type", {**counts, "ecc": 0})


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
