"""Every metric that the GPU exporter serves; and what was read under NVIDIA's own names, those of DCGM.

These are of DCGM's field list, with its units. Since DCGM 4.6 most fields have a second name, under which
the value is the same, also where that name speaks of another unit. Both are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter.gpu.backend import NO_LABELS, Card, Reading, Report
from exporter.http.exposition import Family, header, joined, lines


def _families(kind: str, **texts: str) -> Iterator[Family]:
    return (Family(name, kind, text) for name, text in texts.items())


GPU_FAMILIES = (
    *_families(
        "gauge",
        gpu_info="What the GPU is; the value is always 1.",
        gpu_driver_info="Versions of driver, CUDA and NVML; the value is always 1.",
        gpu_utilization_ratio="Share of the last sample period in which a kernel ran.",
        gpu_utilization_window_max_ratio="Highest utilization sample since the last reading.",
        gpu_memory_controller_utilization_ratio="Share of time in which memory was accessed.",
        gpu_engine_utilization_ratio="Share of time in which a video engine worked.",
        gpu_memory_total_bytes="Memory of the board.",
        gpu_memory_used_bytes="Memory in use by programs.",
        gpu_memory_free_bytes="Memory that can still be allocated.",
        gpu_memory_reserved_bytes="Memory reserved by the driver.",
        gpu_power_watts="Power draw of the board, averaged over a second on most GPUs.",
        gpu_power_instant_watts="Power draw of the board at the time of reading.",
        gpu_power_limit_watts="Limits of the power draw.",
    ),
    Family("gpu_energy_joules_total", "counter", "Energy used since the driver was loaded."),
    *_families(
        "gauge",
        gpu_temperature_celsius="Temperature at a sensor.",
        gpu_temperature_threshold_celsius="Temperature at which the GPU slows down or stops.",
        gpu_temperature_margin_celsius="Degrees left until the GPU slows down.",
        gpu_clock_hertz="Current clock.",
        gpu_clock_max_hertz="Highest clock that the GPU can be set to.",
        gpu_clock_event_active="1 while clocks are throttled for this reason.",
    ),
    Family(
        "gpu_clock_event_seconds_total",
        "counter",
        "Time that clocks were throttled since the driver was loaded.",
    ),
    *_families(
        "gauge",
        gpu_performance_state="Performance state, from 0 (fastest) to 15.",
        gpu_compute_mode="Compute mode: 0 shared, 2 prohibited, 3 one process at a time.",
        gpu_persistence_mode="1 if the driver stays loaded while the GPU is unused (persistence mode).",
        gpu_mig_mode="1 if the GPU is split into instances.",
        gpu_ecc_mode="1 if memory errors are corrected (ECC).",
        gpu_fan_speed_ratio="Requested fan speed as a share of full speed; may exceed 1.",
        gpu_pcie_link_generation="Generation of the PCIe link.",
        gpu_pcie_link_width="Lanes of the PCIe link.",
        gpu_pcie_transmit_bytes_per_second="Bytes sent over PCIe.",
        gpu_pcie_receive_bytes_per_second="Bytes received over PCIe.",
    ),
    Family("gpu_pcie_replays_total", "counter", "PCIe packets retransmitted."),
    Family("gpu_nvlink_links", "gauge", "NVLinks by state."),
    *_families(
        "counter",
        gpu_nvlink_transmit_bytes_total="Bytes sent over NVLink.",
        gpu_nvlink_receive_bytes_total="Bytes received over NVLink.",
        gpu_nvlink_errors_total="Errors of the NVLinks.",
    ),
    *_families(
        "gauge",
        gpu_fabric_state="State in the NVLink fabric: 0 none, 1 not started, 2 in progress, 3 joined.",
        gpu_recovery_action="Recovery that the driver requests: 0 none, 1 reset, 2 reboot, 3 drain, 4 drain, "
        "reset.",
    ),
    *_families(
        "counter",
        gpu_ecc_errors_total="Memory errors in the life of the GPU.",
        gpu_ecc_volatile_errors_total="Memory errors since the driver was loaded.",
        gpu_remapped_rows_total="Rows of memory that were replaced in the life of the GPU.",
    ),
    Family("gpu_row_remap_pending", "gauge", "1 if a row will be replaced at the next reset."),
    Family("gpu_row_remap_failed", "gauge", "1 if a row could not be replaced."),
    Family("gpu_retired_pages_total", "counter", "Memory pages retired in the life of the GPU."),
    Family("gpu_retired_pages_pending", "gauge", "1 if a page will be retired at the next reboot."),
    *_families(
        "gauge",
        gpu_graphics_active_ratio="Share of time in which any engine for compute or graphics worked.",
        gpu_sm_active_ratio="Share of time and of multiprocessors in which one had a warp.",
        gpu_sm_occupancy_ratio="Warps on the multiprocessors as a share of what they can hold.",
        gpu_dram_active_ratio="Bandwidth of the memory in use as a share of what it has.",
        gpu_pipe_active_ratio="Share of time in which a kind of arithmetic unit worked.",
        gpu_mig_info="What a GPU instance is; the value is always 1.",
        gpu_mig_memory_total_bytes="Memory of the GPU instance.",
        gpu_mig_memory_used_bytes="Memory of the GPU instance in use by programs.",
        gpu_mig_memory_free_bytes="Memory of the GPU instance that can still be allocated.",
        gpu_mig_memory_reserved_bytes="Memory of the GPU instance reserved by the driver.",
        gpu_mig_graphics_active_ratio="As gpu_graphics_active_ratio, of the GPU instance.",
        gpu_mig_sm_active_ratio="As gpu_sm_active_ratio, of the GPU instance.",
        gpu_mig_sm_occupancy_ratio="As gpu_sm_occupancy_ratio, of the GPU instance.",
        gpu_mig_dram_active_ratio="As gpu_dram_active_ratio, of the GPU instance.",
        gpu_mig_pipe_active_ratio="As gpu_pipe_active_ratio, of the GPU instance.",
        gpu_processes="Processes that use the GPU.",
        gpu_process_memory_bytes="Memory of the GPU that a process holds.",
        gpu_process_sm_utilization_ratio="Share of time in which a kernel of the process ran.",
        gpu_exporter_unsupported="Values that this GPU or driver does not provide; the value is always 1.",
    ),
    Family("gpu_exporter_collect_errors_total", "counter", "Failed calls that the driver supports."),
    *_families(
        "gauge",
        gpu_exporter_collect_duration_seconds="Duration of the slowest GPU's last read.",
        gpu_exporter_driver_latency_seconds="Slowest driver call of the last read.",
    ),
)
"""What the worker reads, in the order in which it is written."""
DEVICES = Family("gpu_devices", "gauge", "GPUs that the driver lists.")
EXPECTED = Family(
    "gpu_devices_expected", "gauge", "Expected GPUs: as configured, or the most that were listed."
)
UP = Family("gpu_up", "gauge", "1 if the GPU could be read, else 0 with the reason.")
XIDS = Family("gpu_xid_errors_total", "counter", "Critical Xid errors since the exporter started.")
XID_TIME = Family("gpu_xid_last_timestamp_seconds", "gauge", "Time of the last Xid error.")
BUILD = Family("gpu_exporter_build_info", "gauge", "Version; the value is always 1.")
NVML_UP = Family(
    "gpu_exporter_nvml_up", "gauge", "1 if the driver's library NVML answers, else 0 with the reason."
)
COLLECTED = Family("gpu_exporter_last_collect_timestamp_seconds", "gauge", "When the GPUs were last read.")
RESTARTS = Family("gpu_exporter_worker_restarts_total", "counter", "Workers that died or were killed.")
REINITS = Family("gpu_exporter_nvml_reinit_total", "counter", "Workers replaced to reopen NVML.")
SETTINGS = Family("gpu_exporter_config_last_reload_successful", "gauge", "1 if the last settings were valid.")
SETTINGS_AT = Family(
    "gpu_exporter_config_last_reload_success_timestamp_seconds", "gauge", "When settings were last applied."
)

FRONT_FAMILIES = (
    *(DEVICES, EXPECTED, UP, XIDS, XID_TIME, BUILD, NVML_UP, COLLECTED, RESTARTS, REINITS),
    *(SETTINGS, SETTINGS_AT),
)
"""What outlives a worker."""


class DcgmAlias(NamedTuple):
    """A metric of ours with exactly these labels is theirs, times the factor, under each of the names."""

    metric: str
    labels: Mapping[str, str]
    names: tuple[str, ...]
    factor: float
    help: str


def _alias(metric: str, names: str, factor: float, text: str, **labels: str) -> DcgmAlias:
    nvidia = tuple(f"DCGM_FI_{name}" for name in names.split())
    return DcgmAlias(metric, labels or NO_LABELS, nvidia, factor, text)


MIB, MHZ, PERCENT, MILLI, NANO = 2.0**-20, 1e-6, 100.0, 1e3, 1e9

DCGM_ALIASES = (
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
DCGM_LINKS = _alias(
    "",
    "DEV_NVLINK_BANDWIDTH_TOTAL DEV_NVLINK_THROUGHPUT_TOTAL",
    1e-6,
    "MB per second over NVLink.",
)
"""DCGM declares a counter but reports a rate, and so does this: bytes since the last reading."""
_LINK_BYTES = ("gpu_nvlink_transmit_bytes_total", "gpu_nvlink_receive_bytes_total")
DCGM_XID = _alias(
    "gpu_xid_errors_total", "DEV_XID_ERRORS DEV_XID_ERROR", 1, "Last Xid error, 0 if none occurred."
)


def dcgm_families(alias: DcgmAlias) -> list[Family]:
    """The metrics of an alias. A counter of ours is untyped: under their names it may not be called one."""
    kind = "untyped" if alias.metric.endswith("_total") and alias is not DCGM_XID else "gauge"
    return [Family(name, kind, alias.help) for name in alias.names]


Labels = dict[str, str]

_DIGITS = 6
"""A byte is less than that of a MiB; 7 % is not to read as 7.000000000000001."""

_KNOWN = {(alias.metric, frozenset(alias.labels.items())): alias for alias in DCGM_ALIASES}


class _Links(NamedTuple):
    """Bytes that NVLink had moved ``at`` that second, and how many a second since the reading before."""

    at: float
    total: float
    rate: float | None = None


class DcgmWriter:
    """Writes readings under DCGM's names; remembers the labels of GPUs and what their NVLinks had moved."""

    def __init__(self) -> None:
        self.labels: dict[str, Labels] = {}
        self._links: dict[str, _Links] = {}

    def text(self, reports: Iterable[tuple[Card, Report]]) -> str:
        """The exposition text."""
        found: dict[str, str] = {}
        for card, report in ((card, report) for card, report in reports if report.readings):
            self.labels[card.uuid] = _labels(card, report.readings)
            label = joined(self.labels[card.uuid])
            for alias, value in self._values(card.uuid, report):
                sample = (NO_LABELS, round(value * alias.factor, _DIGITS))
                for name in alias.names:
                    found[name] = found.get(name, "") + lines(name, label, [sample])
        shown = (
            family
            for alias in (*DCGM_ALIASES, DCGM_LINKS)
            for family in dcgm_families(alias)
            if family.name in found
        )
        return "".join(header(family) + found[family.name] for family in shown)

    def _values(self, uuid: str, report: Report) -> Iterator[tuple[DcgmAlias, float]]:
        moved = 0.0
        for metric, value, labels in report.readings:
            alias = _KNOWN.get((metric, frozenset(labels.items())))
            if alias is not None:
                yield alias, value
            moved += value if metric in _LINK_BYTES else 0
        rate = self._rate(uuid, report.at, moved)
        if rate is not None:
            yield DCGM_LINKS, rate

    def _rate(self, uuid: str, at: float, moved: float) -> float | None:
        """Bytes per second over NVLink, once it was read twice."""
        last = self._links.get(uuid)
        if not moved or last is None or moved < last.total:
            self._links[uuid] = _Links(at, moved)
        elif at > last.at:
            self._links[uuid] = _Links(at, moved, (moved - last.total) / (at - last.at))
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
