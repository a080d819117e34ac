"""Every metric that the GPU exporter serves."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.http.exposition import Family


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
