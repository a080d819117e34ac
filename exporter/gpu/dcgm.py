"""What was read, served once more under NVIDIA's own names: those of DCGM's field list, with its units.

Since DCGM 4.6 most fields have a second name, under which the value is the same, also where that name
speaks of another unit. Both are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter.gpu.backend import NO_LABELS, Card, Reading, Report
from exporter.http.exposition import Family, header, joined, lines


class Alias(NamedTuple):
    """A metric of ours with exactly these labels is theirs, times the factor, under each of the names."""

    metric: str
    labels: Mapping[str, str]
    names: tuple[str, ...]
    factor: float
    help: str


def _alias(metric: str, names: str, factor: float, text: str, **labels: str) -> Alias:
    nvidia = tuple(f"DCGM_FI_{name}" for name in names.split())
    return Alias(metric, labels or NO_LABELS, nvidia, factor, text)


MIB, MHZ, PERCENT, MILLI, NANO = 2.0**-20, 1e-6, 100.0, 1e3, 1e9

ALIASES = (
    _alias("gpu_clock_hertz", "DEV_SM_CLOCK", MHZ, "SM clock in MHz.", domain="sm"),
    _alias("gpu_clock_hertz", "DEV_MEM_CLOCK", MHZ, "Memory clock in MHz.", domain="memory"),
    _alias(
        "gpu_temperature_celsius",
        "DEV_GPU_TEMP DEV_GPU_TEMP_CELSIUS",
        1,
        "Temperature of the GPU.",
        sensor="gpu",
    ),
    _alias(
        "gpu_temperature_celsius",
        "DEV_MEMORY_TEMP DEV_MEMORY_TEMP_CELSIUS",
        1,
        "Temperature of the memory.",
        sensor="memory",
    ),
    _alias("gpu_power_watts", "DEV_POWER_USAGE DEV_BOARD_POWER_WATTS", 1, "Power draw in W."),
    _alias(
        "gpu_power_limit_watts",
        "DEV_ENFORCED_POWER_LIMIT DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
        1,
        "Enforced power limit in W.",
        limit="enforced",
    ),
    _alias(
        "gpu_energy_joules_total",
        "DEV_TOTAL_ENERGY_CONSUMPTION",
        MILLI,
        "Energy in mJ since the driver was loaded.",
    ),
    _alias(
        "gpu_pcie_replays_total",
        "DEV_PCIE_REPLAY_COUNTER DEV_PCIE_REPLAY_TOTAL",
        1,
        "PCIe packets retransmitted.",
    ),
    _alias("gpu_utilization_ratio", "DEV_GPU_UTIL DEV_GPU_UTIL_RATIO", PERCENT, "Utilisation in percent."),
    _alias(
        "gpu_memory_controller_utilization_ratio",
        "DEV_MEM_COPY_UTIL",
        PERCENT,
        "Utilisation of the memory's bandwidth in percent.",
    ),
    _alias(
        "gpu_engine_utilization_ratio",
        "DEV_ENC_UTIL",
        PERCENT,
        "Utilisation of the encoder in percent.",
        engine="encoder",
    ),
    _alias(
        "gpu_engine_utilization_ratio",
        "DEV_DEC_UTIL",
        PERCENT,
        "Utilisation of the decoder in percent.",
        engine="decoder",
    ),
    _alias("gpu_memory_total_bytes", "DEV_FB_TOTAL", MIB, "Memory in MiB."),
    _alias("gpu_memory_free_bytes", "DEV_FB_FREE", MIB, "Free memory in MiB."),
    _alias("gpu_memory_used_bytes", "DEV_FB_USED", MIB, "Used memory in MiB."),
    _alias("gpu_memory_reserved_bytes", "DEV_FB_RESERVED", MIB, "Memory in MiB reserved by the driver."),
    _alias(
        "gpu_clock_event_seconds_total",
        "DEV_POWER_VIOLATION",
        NANO,
        "Time in ns at the power limit.",
        reason="power_cap",
    ),
    _alias(
        "gpu_ecc_volatile_errors_total",
        "DEV_ECC_SBE_VOL_TOTAL",
        1,
        "Corrected memory errors since the driver was loaded.",
        type="corrected",
    ),
    _alias(
        "gpu_ecc_volatile_errors_total",
        "DEV_ECC_DBE_VOL_TOTAL",
        1,
        "Uncorrected memory errors since the driver was loaded.",
        type="uncorrected",
    ),
    _alias(
        "gpu_remapped_rows_total",
        "DEV_UNCORRECTABLE_REMAPPED_ROWS DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
        1,
        "Rows of memory replaced for uncorrectable errors.",
        cause="uncorrectable",
    ),
    _alias(
        "gpu_remapped_rows_total",
        "DEV_CORRECTABLE_REMAPPED_ROWS DEV_ROW_REMAP_CORRECTABLE_TOTAL",
        1,
        "Rows of memory replaced for correctable errors.",
        cause="correctable",
    ),
    _alias(
        "gpu_row_remap_failed",
        "DEV_ROW_REMAP_FAILURE DEV_ROW_REMAP_FAILED",
        1,
        "1 if a row could not be replaced.",
    ),
    _alias(
        "gpu_graphics_active_ratio",
        "PROF_GR_ENGINE_ACTIVE PROF_GR_ENGINE_UTIL_RATIO",
        1,
        "Share of time in which any engine worked.",
    ),
    _alias(
        "gpu_sm_active_ratio",
        "PROF_SM_ACTIVE PROF_SM_UTIL_RATIO",
        1,
        "Share of time in which multiprocessors had a warp.",
    ),
    _alias(
        "gpu_sm_occupancy_ratio",
        "PROF_SM_OCCUPANCY PROF_SM_OCCUPANCY_RATIO",
        1,
        "Share of the warps that multiprocessors can hold.",
    ),
    _alias(
        "gpu_pipe_active_ratio",
        "PROF_PIPE_TENSOR_ACTIVE PROF_TENSOR_UTIL_RATIO",
        1,
        "Share of time in which tensor units worked.",
        pipe="tensor",
    ),
    _alias(
        "gpu_dram_active_ratio",
        "PROF_DRAM_ACTIVE PROF_DRAM_UTIL_RATIO",
        1,
        "Share of time in which memory was read or written.",
    ),
    _alias("gpu_pcie_transmit_bytes_per_second", "PROF_PCIE_TX_BYTES", 1, "Bytes sent per second over PCIe."),
    _alias(
        "gpu_pcie_receive_bytes_per_second", "PROF_PCIE_RX_BYTES", 1, "Bytes received per second over PCIe."
    ),
)
LINKS = _alias(
    "",
    "DEV_NVLINK_BANDWIDTH_TOTAL DEV_NVLINK_THROUGHPUT_TOTAL",
    1e-6,
    "MB per second over NVLink.",
)
"""DCGM declares a counter but reports a rate, and so does this: bytes since the last reading."""
LINK_BYTES = ("gpu_nvlink_transmit_bytes_total", "gpu_nvlink_receive_bytes_total")
XID = _alias("gpu_xid_errors_total", "DEV_XID_ERRORS DEV_XID_ERROR", 1, "Last Xid error, 0 if none occurred.")


def families(alias: Alias) -> list[Family]:
    """The metrics of an alias. A counter of ours is untyped: under their names it may not be called one."""
    kind = "untyped" if alias.metric.endswith("_total") and alias is not XID else "gauge"
    return [Family(name, kind, alias.help) for name in alias.names]


Labels = dict[str, str]

DIGITS = 6
"""A byte is less than that of a MiB; 7 % is not to read as 7.000000000000001."""

_KNOWN = {(alias.metric, frozenset(alias.labels.items())): alias for alias in ALIASES}


class Links(NamedTuple):
    """Bytes that NVLink had moved ``at`` that second, and how many a second since the reading before."""

    at: float
    total: float
    rate: float | None = None


class DcgmWriter:
    """Writes readings under DCGM's names; remembers the labels of GPUs and what their NVLinks had moved."""

    def __init__(self) -> None:
        self.labels: dict[str, Labels] = {}
        self._links: dict[str, Links] = {}

    def text(self, reports: Iterable[tuple[Card, Report]]) -> str:
        """The exposition text."""
        found: dict[str, str] = {}
        for card, report in ((card, report) for card, report in reports if report.readings):
            self.labels[card.uuid] = _labels(card, report.readings)
            label = joined(self.labels[card.uuid])
            for alias, value in self._values(card.uuid, report):
                sample = (NO_LABELS, round(value * alias.factor, DIGITS))
                for name in alias.names:
                    found[name] = found.get(name, "") + lines(name, label, [sample])
        shown = (family for alias in (*ALIASES, LINKS) for family in families(alias) if family.name in found)
        return "".join(header(family) + found[family.name] for family in shown)

    def _values(self, uuid: str, report: Report) -> Iterator[tuple[Alias, float]]:
        moved = 0.0
        for metric, value, labels in report.readings:
            alias = _KNOWN.get((metric, frozenset(labels.items())))
            if alias is not None:
                yield alias, value
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
