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
    """``unit`` turns what stands at one of the ``paths`` into ours.

    Two values agree if they are no further apart than ``slack``, in our unit, plus ``share`` of the
    value: nothing but rounding for what stands still, more for what moves between two questions.
    """

    metric: str
    labels: Mapping[str, str]
    paths: tuple[str, ...]
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
_POWER = ("gpu_power_readings", "power_readings")
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
_LINK = "pci/pci_gpu_link_info"


def _power(*names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for folder in _POWER for name in names)


def _one(metric: str, path: str, ask: Ask | None = None, unit: float = 1.0, **near: float) -> Row:
    return Row(metric, NO_LABELS, (path,), unit, near.get("slack", 0.0), near.get("share", 0.0), ask)


ROWS = (
    *(
        _one(f"gpu_memory_{part}_bytes", f"fb_memory_usage/{part}", unit=MIB, slack=MIB, share=share)
        for part, share in {"total": 0.0, "reserved": 0.01, "used": 0.05, "free": 0.05}.items()
    ),
    _one("gpu_utilization_ratio", "utilization/gpu_util", unit=PERCENT, slack=0.3),
    _one("gpu_memory_controller_utilization_ratio", "utilization/memory_util", unit=PERCENT, slack=0.3),
    *(
        Row("gpu_engine_utilization_ratio", {"engine": engine}, (f"utilization/{engine}_util",), PERCENT, 0.3)
        for engine in ("encoder", "decoder", "jpeg", "ofa")
    ),
    Row(
        "gpu_power_watts",
        NO_LABELS,
        _power("average_power_draw", "power_draw"),
        1,
        5,
        0.15,
        Ask("PowerUsage", 1e-3),
    ),
    Row("gpu_power_instant_watts", NO_LABELS, _power("instant_power_draw"), 1, 5, 0.3),
    *(
        Row("gpu_power_limit_watts", {"limit": limit}, _power(*names), 1, 0.01)
        for limit, names in _LIMITS.items()
    ),
    Row(
        "gpu_temperature_celsius",
        {"sensor": "gpu"},
        ("temperature/gpu_temp",),
        1,
        2,
        0,
        Ask("Temperature", 1, (0,)),
    ),
    Row("gpu_temperature_celsius", {"sensor": "memory"}, ("temperature/memory_temp",), 1, 2),
    _one("gpu_temperature_margin_celsius", "temperature/gpu_temp_tlimit", slack=2),
    *(
        Row(
            "gpu_clock_hertz",
            {"domain": domain},
            (f"clocks/{name}",),
            MHZ,
            MHZ,
            0.1,
            Ask("ClockInfo", MHZ, (number,)),
        )
        for domain, (name, number) in _CLOCKS.items()
    ),
    *(
        Row(
            "gpu_clock_max_hertz",
            {"domain": domain},
            (f"max_clocks/{name}",),
            MHZ,
            0,
            0,
            Ask("MaxClockInfo", MHZ, (number,)),
        )
        for domain, (name, number) in _CLOCKS.items()
    ),
    *(
        Row(
            "gpu_clock_event_active",
            {"reason": reason},
            (
                f"clocks_event_reasons/clocks_event_reason_{name}",
                f"clocks_throttle_reasons/clocks_throttle_reason_{name}",
            ),
        )
        for reason, name in _EVENTS.items()
    ),
    *(
        Row(
            "gpu_clock_event_seconds_total",
            {"reason": reason},
            (f"clocks_event_reasons_counters/clocks_event_reasons_counters_{name}",),
            1e-6,
            2,
            0.05,
        )
        for reason, name in _COUNTERS.items()
    ),
    _one("gpu_performance_state", "performance_state", Ask("PerformanceState")),
    _one("gpu_compute_mode", "compute_mode", Ask("ComputeMode")),
    _one("gpu_persistence_mode", "persistence_mode", Ask("PersistenceMode")),
    _one("gpu_mig_mode", "mig_mode/current_mig"),
    _one("gpu_ecc_mode", "ecc_mode/current_ecc"),
    Row("gpu_fan_speed_ratio", {"fan": "0"}, ("fan_speed",), PERCENT, 0.05, 0, Ask("FanSpeed", PERCENT)),
    *(
        Row(
            f"gpu_pcie_link_{what}",
            {"kind": kind},
            (f"{_LINK}/{folder}/{kind}_link_{short}",),
            ask=Ask(f"{'Curr' if kind == 'current' else 'Max'}PcieLink{what.capitalize()}"),
        )
        for what, folder, short in (("generation", "pcie_gen", "gen"), ("width", "link_widths", "width"))
        for kind in ("current", "max")
    ),
    _one("gpu_pcie_replays_total", "pci/replay_counter"),
    Row("gpu_remapped_rows_total", {"cause": "correctable"}, ("remapped_rows/remapped_row_corr",)),
    Row("gpu_remapped_rows_total", {"cause": "uncorrectable"}, ("remapped_rows/remapped_row_unc",)),
    _one("gpu_row_remap_pending", "remapped_rows/remapped_row_pending"),
    _one("gpu_row_remap_failed", "remapped_rows/remapped_row_failure"),
    _one("gpu_fabric_state", "fabric/state"),
    _one("gpu_recovery_action", "gpu_recovery_action"),
)
