"""What is compared: a metric, where ``nvidia-smi`` says the same, and NVML's plain call for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from exporter.gpu.backend import NO_LABELS


class Ask(NamedTuple):
    """A call of NVML's that takes a GPU and these numbers, and what to multiply the answer with."""

    call: str
    scale: float = 1.0
    arguments: tuple[int, ...] = ()


class Row(NamedTuple):
    """A value that all three may have; ``unit`` turns what stands at one of the ``paths`` into ours.

    Two values agree if they are no further apart than ``slack``, in our unit, plus ``share`` of the
    value: nothing but rounding for what stands still, more for what moves between two calls.
    """

    metric: str
    paths: tuple[str, ...]
    labels: Mapping[str, str] = NO_LABELS
    unit: float = 1.0
    slack: float = 0.0
    share: float = 0.0
    ask: Ask | None = None

    @property
    def name(self) -> str:
        """As people write it."""
        labels = ",".join(f'{label}="{text}"' for label, text in self.labels.items())
        return f"{self.metric}{{{labels}}}" if labels else self.metric


MIB = 2.0**20
MHZ = 1e6
PERCENT = 0.01
_CLOCKS = {"graphics": ("graphics_clock", 0), "sm": ("sm_clock", 1), "memory": ("mem_clock", 2)}
_LIMITS = {
    "enforced": ("current_power_limit", "enforced_power_limit"),
    "requested": ("requested_power_limit", "power_limit"),
    "default": ("default_power_limit",),
    "min": ("min_power_limit",),
    "max": ("max_power_limit",),
}
_EVENTS = {
    "idle": "gpu_idle",
    "application_clocks": "applications_clocks_setting",
    "power_cap": "sw_power_cap",
    "hardware_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "software_thermal": "sw_thermal_slowdown",
    "hardware_thermal": "hw_thermal_slowdown",
    "power_brake": "hw_power_brake_slowdown",
}
_COUNTERS = {
    "power_cap": "sw_power_cap",
    "sync_boost": "sync_boost",
    "software_thermal": "sw_therm_slowdown",
    "hardware_thermal": "hw_therm_slowdown",
    "power_brake": "hw_power_brake",
}


def _power(*names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for folder in ("gpu_power_readings", "power_readings") for name in names)


ROWS = (
    *(
        Row(f"gpu_memory_{part}_bytes", (f"fb_memory_usage/{part}",), unit=MIB, slack=MIB, share=share)
        for part, share in {"total": 0.0, "reserved": 0.01, "used": 0.05, "free": 0.05}.items()
    ),
    Row("gpu_utilization_ratio", ("utilization/gpu_util",), unit=PERCENT, slack=0.3),
    Row("gpu_memory_controller_utilization_ratio", ("utilization/memory_util",), unit=PERCENT, slack=0.3),
    *(
        Row("gpu_engine_utilization_ratio", (f"utilization/{engine}_util",), {"engine": engine}, PERCENT, 0.3)
        for engine in ("encoder", "decoder", "jpeg", "ofa")
    ),
    Row(
        "gpu_power_watts", _power("average_power_draw", "power_draw"),
        slack=5, share=0.15, ask=Ask("PowerUsage", 1e-3),
    ),
    Row("gpu_power_instant_watts", _power("instant_power_draw"), slack=5, share=0.3),
    *(
        Row("gpu_power_limit_watts", _power(*names), {"limit": limit}, slack=0.01)
        for limit, names in _LIMITS.items()
    ),
    Row(
        "gpu_temperature_celsius", ("temperature/gpu_temp",), {"sensor": "gpu"},
        slack=2, ask=Ask("Temperature", 1, (0,)),
    ),
    Row("gpu_temperature_celsius", ("temperature/memory_temp",), {"sensor": "memory"}, slack=2),
    Row("gpu_temperature_margin_celsius", ("temperature/gpu_temp_tlimit",), slack=2),
    *(
        Row(metric, (f"{folder}/{name}",), {"domain": domain}, MHZ, slack, share, Ask(call, MHZ, (number,)))
        for metric, folder, slack, share, call in (
            ("gpu_clock_hertz", "clocks", MHZ, 0.1, "ClockInfo"),
            ("gpu_clock_max_hertz", "max_clocks", 0, 0, "MaxClockInfo"),
        )
        for domain, (name, number) in _CLOCKS.items()
    ),
    *(
        Row(
            "gpu_clock_event_active",
            tuple(f"clocks_{era}_reasons/clocks_{era}_reason_{name}" for era in ("event", "throttle")),
            {"reason": reason},
        )
        for reason, name in _EVENTS.items()
    ),
    *(
        Row(
            "gpu_clock_event_seconds_total",
            (f"clocks_event_reasons_counters/clocks_event_reasons_counters_{name}",),
            {"reason": reason}, unit=1e-6, slack=2, share=0.05,
        )
        for reason, name in _COUNTERS.items()
    ),
    Row("gpu_performance_state", ("performance_state",), ask=Ask("PerformanceState")),
    Row("gpu_compute_mode", ("compute_mode",), ask=Ask("ComputeMode")),
    Row("gpu_persistence_mode", ("persistence_mode",), ask=Ask("PersistenceMode")),
    Row("gpu_mig_mode", ("mig_mode/current_mig",)),
    Row("gpu_ecc_mode", ("ecc_mode/current_ecc",)),
    Row("gpu_fan_speed_ratio", ("fan_speed",), {"fan": "0"}, PERCENT, 0.05, ask=Ask("FanSpeed", PERCENT)),
    *(
        Row(
            f"gpu_pcie_link_{what}", (f"pci/pci_gpu_link_info/{folder}/{kind}_link_{short}",), {"kind": kind},
            ask=Ask(f"{'Curr' if kind == 'current' else 'Max'}PcieLink{what.capitalize()}"),
        )
        for what, folder, short in (("generation", "pcie_gen", "gen"), ("width", "link_widths", "width"))
        for kind in ("current", "max")
    ),
    Row("gpu_pcie_replays_total", ("pci/replay_counter",)),
    Row("gpu_remapped_rows_total", ("remapped_rows/remapped_row_corr",), {"cause": "correctable"}),
    Row("gpu_remapped_rows_total", ("remapped_rows/remapped_row_unc",), {"cause": "uncorrectable"}),
    Row("gpu_row_remap_pending", ("remapped_rows/remapped_row_pending",)),
    Row("gpu_row_remap_failed", ("remapped_rows/remapped_row_failure",)),
    Row("gpu_fabric_state", ("fabric/state",)),
    Row("gpu_recovery_action", ("gpu_recovery_action",)),
)  # fmt: skip
