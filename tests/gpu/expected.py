"""What is to be served of GPU 3 of the stand-in library, by metric and own label."""

from __future__ import annotations

from exporter.gpu.backend import CRITICAL_XIDS
from exporter.gpu.table import CLOCK_EVENTS
from tests.gpu.driver import uuid
from tests.runs.scrape import Scrape

Values = dict[tuple[str, str], float]


def series_of(found: Scrape, gpu: int = 3) -> dict[str, float]:
    """All values of a GPU, by metric and its own labels: ``gpu_clock_hertz sm``."""
    return {
        " ".join(
            [name, ",".join(text for label, text in sorted(labels) if label not in ("gpu", "uuid"))]
        ).strip(): value
        for (name, labels), value in found.samples.items()
        if {("gpu", str(gpu)), ("uuid", uuid(gpu))} <= labels
    }


def of(found: Scrape, gpu: int = 3) -> Values:
    """A GPU's values by metric and its own labels, as far as the tables below speak of the metric."""
    values = {tuple(f"{name} ".split(" ")[:2]): value for name, value in series_of(found, gpu).items()}
    return {(metric, label): value for (metric, label), value in values.items() if metric in OURS}


def lacking(found: Scrape, gpu: int = 3) -> dict[str, str]:
    """What a GPU does not give, and why."""
    labels = (dict(labels) for labels in found.all("gpu_exporter_unsupported", gpu=str(gpu)))
    return {named["call"]: named["reason"] for named in labels}


def _each(metric: str, values: dict[str, float]) -> Values:
    return {(metric, label): value for label, value in values.items()}


COMMON: Values = {
    ("gpu_up", "ok"): 1,
    ("gpu_utilization_ratio", ""): 0.43,
    ("gpu_memory_controller_utilization_ratio", ""): 0.3,
    ("gpu_memory_reserved_bytes", ""): 643825664,
    ("gpu_memory_used_bytes", ""): 13 << 30,
    ("gpu_power_watts", ""): 303,
    ("gpu_power_instant_watts", ""): 313,
    **_each(
        "gpu_power_limit_watts", {"default": 700, "min": 200, "max": 700, "requested": 660, "enforced": 650}
    ),
    ("gpu_energy_joules_total", ""): 5000000000.003,
    ("gpu_temperature_celsius", "gpu"): 53,
    **_each("gpu_clock_hertz", {"graphics": 1.7e9, "sm": 1.71e9, "memory": 3.2e9, "video": 1.5e9}),
    **_each("gpu_clock_max_hertz", {"graphics": 1.98e9, "sm": 1.981e9, "memory": 3.201e9}),
    **_each("gpu_clock_event_active", {reason: reason == "power_cap" for reason in CLOCK_EVENTS}),
    **_each("gpu_clock_event_seconds_total", {"power_cap": 7403, "sync_boost": 7603}),
    ("gpu_performance_state", ""): 2,
    ("gpu_compute_mode", ""): 3,
    ("gpu_persistence_mode", ""): 1,
    **_each("gpu_pcie_link_generation", {"current": 4, "max": 5}),
    **_each("gpu_pcie_link_width", {"current": 8, "max": 16}),
    ("gpu_pcie_replays_total", ""): 9403,
    ("gpu_exporter_driver_latency_seconds", ""): 40e-6,
    **_each("gpu_xid_errors_total", {str(xid): 0 for xid in CRITICAL_XIDS}),
}
"""Of every card."""

SHARES = {"graphics_active": 1, "sm_active": 2, "sm_occupancy": 3, "dram_active": 10}
"""Numbers of what a GPU counts itself; of GPU 3 the number and 3 are the percent."""

KINDS = _each(
    "gpu_clock_event_seconds_total", {"software_thermal": 1003, "hardware_thermal": 2003, "power_brake": 3003}
)
"""What drivers tell that know the kinds of throttling."""

SUM = _each("gpu_clock_event_seconds_total", {"thermal": 7503})
"""What the others tell."""

ENGINES = _each("gpu_engine_utilization_ratio", {"encoder": 0.11, "decoder": 0.12, "jpeg": 0.13, "ofa": 0.14})

DATA_CENTRE: Values = {
    ("gpu_temperature_celsius", "memory"): 63,
    ("gpu_clock_max_hertz", "video"): 1.545e9,
    ("gpu_mig_mode", ""): 0,
    ("gpu_ecc_mode", ""): 1,
    **_each("gpu_ecc_volatile_errors_total", {"corrected": 303, "uncorrected": 403}),
    **_each("gpu_ecc_errors_total", {"corrected": 503, "uncorrected": 603}),
    **_each("gpu_remapped_rows_total", {"correctable": 14203, "uncorrectable": 14303}),
    ("gpu_row_remap_pending", ""): 1,
    ("gpu_row_remap_failed", ""): 0,
    ("gpu_recovery_action", ""): 0,
    **_each("gpu_nvlink_links", {"active": 18, "inactive": 0}),
    ("gpu_nvlink_transmit_bytes_total", ""): 13803 * 1024,
    ("gpu_nvlink_receive_bytes_total", ""): 13903 * 1024,
    **_each(
        "gpu_nvlink_errors_total",
        {"crc_flit": 3803, "crc_data": 4503, "replay": 5203, "recovery": 5903, "ecc": 16003},
    ),
}

H200: Values = {
    **COMMON,
    **KINDS,
    **ENGINES,
    **DATA_CENTRE,
    ("gpu_memory_total_bytes", ""): 150754820096,
    ("gpu_memory_free_bytes", ""): 150754820096 - 643825664 - (13 << 30),
    ("gpu_temperature_margin_celsius", ""): 34,
    **_each("gpu_temperature_threshold_celsius", {"shutdown": 95, "slowdown": 89, "gpu_max": 87}),
    ("gpu_fabric_state", ""): 3,
}

A100: Values = {
    **COMMON,
    **KINDS,
    **ENGINES,
    **DATA_CENTRE,
    ("gpu_memory_total_bytes", ""): 85899345920,
    ("gpu_memory_free_bytes", ""): 85899345920 - 643825664 - (13 << 30),
    ("gpu_temperature_margin_celsius", ""): 89 - 53,
    **_each("gpu_temperature_threshold_celsius", {"shutdown": 92, "slowdown": 89, "gpu_max": 85}),
    ("gpu_nvlink_links", "active"): 12,
}

_NOT_OF_PARTS = {
    "gpu_utilization_ratio",
    "gpu_memory_controller_utilization_ratio",
    "gpu_engine_utilization_ratio",
    "gpu_remapped_rows_total",
}
A100_MIG: Values = {
    **{
        key: value
        for key, value in A100.items()
        if key[0] not in _NOT_OF_PARTS and not (key[0].startswith("gpu_ecc_") and key[1] == "uncorrected")
    },
    ("gpu_mig_mode", ""): 1,
}

RTX4080: Values = {
    **COMMON,
    **KINDS,
    **{key: value for key, value in ENGINES.items() if key[1] != "jpeg"},
    ("gpu_memory_total_bytes", ""): 17171480576,
    ("gpu_memory_free_bytes", ""): 17171480576 - 643825664 - (13 << 30),
    ("gpu_temperature_margin_celsius", ""): 34,
    **_each("gpu_temperature_threshold_celsius", {"shutdown": 95, "slowdown": 89, "gpu_max": 87}),
    **_each("gpu_fan_speed_ratio", {"0": 0.3, "1": 1.1}),
}

_FIFTH = {
    "malformed_packet": 20603,
    "buffer_overrun": 20703,
    "receive": 20803,
    "receive_remote": 20903,
    "receive_general": 21003,
    "integrity": 21103,
    "transmit_discard": 21203,
    "link_recovery_failed": 21403,
    "link_recovery": 21503,
    "symbol": 22103,
}
B200: Values = {
    **{key: value for key, value in H200.items() if key[0] != "gpu_nvlink_errors_total"},
    ("gpu_memory_total_bytes", ""): 192265846784,
    ("gpu_memory_free_bytes", ""): 192265846784 - 643825664 - (13 << 30),
    ("gpu_nvlink_transmit_bytes_total", ""): 20203,
    ("gpu_nvlink_receive_bytes_total", ""): 20403,
    **_each("gpu_nvlink_errors_total", _FIFTH),
}

CARDS = {"h200": H200, "a100": A100, "a100-mig": A100_MIG, "rtx4080": RTX4080, "b200": B200}

OURS = frozenset(metric for card in CARDS.values() for metric, _ in card)
