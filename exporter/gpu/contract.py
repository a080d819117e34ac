"""Numbers and words that several parts of the exporter share."""

from __future__ import annotations

CRITICAL_XIDS = (46, 48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 140, 143)
"""Xid errors whose counters stand at 0 from the start: ``increase`` cannot see the first event else."""

STALE_INTERVALS = 3
"""No value is served that is older than this."""

FRESH = 75
"""Exit code with which a worker asks to be replaced, to reopen NVML, and a front asks to be restarted."""

RELEASED = "released"
"""The reason while the devices are released on request."""

RELEASE_SECONDS = 60
LONGEST_RELEASE_SECONDS = 3600
"""How long the devices are released, by default and at most: no GPU is watched meanwhile."""

UNKNOWN = "unknown"
"""NVML's code for unknown errors; for a single GPU it means that the GPU is lost."""

MIG_CHANGED = "mig_changed"
"""Why a GPU whose MIG layout changed is down until NVML is reopened."""

CLOCK_EVENTS = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "power_cap",
    0x8: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
    0x100: "display",
}
"""Why clocks are throttled, by NVML's bit."""

NVML_REASONS = {
    "ok": "NVML answers.",
    "starting": "NVML is being opened.",
    "library_not_found": "libnvidia-ml.so.1 was not found. Fix: install NVIDIA's driver, or give this "
    "container access to the GPUs.",
    "driver_not_loaded": "NVIDIA's driver is not loaded. Fix: modprobe nvidia, or a reboot.",
    "version_mismatch": "The driver was upgraded while the old one is loaded. Fix: reload it or reboot; "
    "a container must be recreated.",
    "no_permission": "This user may not use the NVIDIA devices. Fix: let it read and write /dev/nvidia*.",
    "uninitialized": "NVML lost its connection to the driver.",
    "timeout": "The driver does not answer.",
    "stuck": "The last worker hangs in the driver and cannot be killed. Fix: reset the GPU or reboot.",
    "crashed": "The worker crashed in the driver's library.",
    "released": "The devices are released on request.",
}
"""What ``gpu_exporter_nvml_up`` gives as reason, and what it means. Other NVML errors go by their name."""
