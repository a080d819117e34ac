"""Every metric that the GPU exporter serves, and the words it gives as reasons."""

from __future__ import annotations

from exporter.exposition import Family

CRITICAL_XIDS = (46, 48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 140, 143)
"""Xid errors whose counters stand at 0 from the start: ``increase`` cannot see the first event else."""

STALE_INTERVALS = 3
"""No value is served that is older than this."""

FRESH = 75
"""Exit code with which a worker asks for another one, to open NVML anew."""

GPU_FAMILIES = (
    Family("gpu_info", "gauge", "What the GPU is; the value is always 1."),
    Family("gpu_driver_info", "gauge", "Versions of driver, CUDA and NVML; the value is always 1."),
    Family("gpu_utilization_ratio", "gauge", "Share of the last sample period in which a kernel ran."),
    Family("gpu_utilization_window_max_ratio", "gauge", "Highest utilization sample since the last reading."),
    Family("gpu_memory_controller_utilization_ratio", "gauge", "Share of time in which memory was accessed."),
    Family("gpu_memory_total_bytes", "gauge", "Memory of the board."),
    Family("gpu_memory_used_bytes", "gauge", "Memory in use by programs."),
    Family("gpu_memory_free_bytes", "gauge", "Memory that can still be allocated."),
    Family("gpu_memory_reserved_bytes", "gauge", "Memory that the driver keeps for itself."),
    Family("gpu_power_watts", "gauge", "Power draw of the board, averaged over a second on most GPUs."),
    Family("gpu_power_instant_watts", "gauge", "Power draw of the board at the time of reading."),
    Family("gpu_power_limit_watts", "gauge", "Limits of the power draw."),
    Family("gpu_energy_joules_total", "counter", "Energy used since the driver was loaded."),
    Family("gpu_temperature_celsius", "gauge", "Temperature at a sensor."),
    Family("gpu_temperature_threshold_celsius", "gauge", "Temperature at which the GPU slows down or stops."),
    Family("gpu_temperature_margin_celsius", "gauge", "Degrees left until the GPU slows down."),
    Family("gpu_clock_hertz", "gauge", "Current clock."),
    Family("gpu_clock_max_hertz", "gauge", "Highest clock that the GPU can be set to."),
    Family(
        "gpu_exporter_unsupported", "gauge", "What this GPU or driver does not give; the value is always 1."
    ),
    Family("gpu_exporter_collect_errors_total", "counter", "Calls that failed though they are supported."),
    Family(
        "gpu_exporter_collect_duration_seconds", "gauge", "Time that the slowest GPU took when last read."
    ),
)
"""What the worker reads, in the order in which it is written."""

DEVICES = Family("gpu_devices", "gauge", "GPUs that the driver lists.")
EXPECTED = Family(
    "gpu_devices_expected", "gauge", "Most GPUs that the driver listed since the exporter started."
)
UP = Family("gpu_up", "gauge", "1 if the GPU could be read, else 0 with the reason.")
XIDS = Family("gpu_xid_errors_total", "counter", "Critical Xid errors since the exporter started.")
XID_TIME = Family("gpu_xid_last_timestamp_seconds", "gauge", "When an Xid error last came.")
BUILD = Family("gpu_exporter_build_info", "gauge", "Version; the value is always 1.")
NVML_UP = Family(
    "gpu_exporter_nvml_up", "gauge", "1 if the driver's library NVML answers, else 0 with the reason."
)
COLLECTED = Family("gpu_exporter_last_collect_timestamp_seconds", "gauge", "When the GPUs were last read.")
RESTARTS = Family("gpu_exporter_worker_restarts_total", "counter", "Workers that died or were killed.")
REINITS = Family("gpu_exporter_nvml_reinit_total", "counter", "Workers replaced to open NVML anew.")

BOX_FAMILIES = (DEVICES, EXPECTED, UP, XIDS, XID_TIME, BUILD, NVML_UP, COLLECTED, RESTARTS, REINITS)
"""What outlives a worker."""

NVML_REASONS = {
    "ok": "NVML answers.",
    "starting": "NVML is being opened.",
    "library_not_found": "There is no libnvidia-ml.so.1. Cure: install NVIDIA's driver, or give this "
    "container access to the GPUs.",
    "driver_not_loaded": "NVIDIA's driver is not loaded. Cure: modprobe nvidia, or a reboot.",
    "version_mismatch": "The driver was upgraded while the old one is loaded. Cure: reload it or reboot; "
    "a container must be recreated.",
    "no_permission": "This user may not use the NVIDIA devices. Cure: let it read and write /dev/nvidia*.",
    "uninitialized": "NVML lost its connection to the driver.",
    "timeout": "The driver does not answer.",
    "stuck": "The driver holds the last worker, which cannot even be killed. Cure: reset the GPU or reboot.",
    "crashed": "The worker crashed in the driver's library.",
}
"""What ``gpu_exporter_nvml_up`` gives as reason, and what it means. Other NVML errors go by their name."""
