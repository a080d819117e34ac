"""Every metric that the GPU exporter serves: type, name and help text."""

from __future__ import annotations

from exporter.http.exposition import Family


def _families(table: str) -> tuple[Family, ...]:
    rows = (line.split(" ", 2) for line in table.strip().splitlines())
    return tuple(Family(name, kind, text) for kind, name, text in rows)


GPU_FAMILIES = _families("""
gauge gpu_info What the GPU is; the value is always 1.
gauge gpu_driver_info Versions of driver, CUDA and NVML; the value is always 1.
gauge gpu_utilization_ratio Share of the last sample period in which a kernel ran.
gauge gpu_utilization_window_max_ratio Highest utilization sample since the last reading.
gauge gpu_memory_controller_utilization_ratio Share of time in which memory was accessed.
gauge gpu_engine_utilization_ratio Share of time in which a video engine worked.
gauge gpu_memory_total_bytes Memory of the board.
gauge gpu_memory_used_bytes Memory in use by programs.
gauge gpu_memory_free_bytes Memory that can still be allocated.
gauge gpu_memory_reserved_bytes Memory reserved by the driver.
gauge gpu_power_watts Power draw of the board, averaged over a second on most GPUs.
gauge gpu_power_instant_watts Power draw of the board at the time of reading.
gauge gpu_power_limit_watts Limits of the power draw.
counter gpu_energy_joules_total Energy used since the driver was loaded.
gauge gpu_temperature_celsius Temperature at a sensor.
gauge gpu_temperature_threshold_celsius Temperature at which the GPU slows down or stops.
gauge gpu_temperature_margin_celsius Degrees left until the GPU slows down.
gauge gpu_clock_hertz Current clock.
gauge gpu_clock_max_hertz Highest clock that the GPU can be set to.
gauge gpu_clock_event_active 1 while clocks are throttled for this reason.
counter gpu_clock_event_seconds_total Time that clocks were throttled since the driver was loaded.
gauge gpu_performance_state Performance state, from 0 (fastest) to 15.
gauge gpu_compute_mode Compute mode: 0 shared, 2 prohibited, 3 one process at a time.
gauge gpu_persistence_mode 1 if the driver stays loaded while the GPU is unused (persistence mode).
gauge gpu_mig_mode 1 if the GPU is split into instances.
gauge gpu_ecc_mode 1 if memory errors are corrected (ECC).
gauge gpu_fan_speed_ratio Requested fan speed as a share of full speed; may exceed 1.
gauge gpu_pcie_link_generation Generation of the PCIe link.
gauge gpu_pcie_link_width Lanes of the PCIe link.
gauge gpu_pcie_transmit_bytes_per_second Bytes sent over PCIe.
gauge gpu_pcie_receive_bytes_per_second Bytes received over PCIe.
counter gpu_pcie_replays_total PCIe packets retransmitted.
gauge gpu_nvlink_links NVLinks by state.
counter gpu_nvlink_transmit_bytes_total Bytes sent over NVLink.
counter gpu_nvlink_receive_bytes_total Bytes received over NVLink.
counter gpu_nvlink_errors_total Errors of the NVLinks.
gauge gpu_fabric_state State in the NVLink fabric: 0 none, 1 not started, 2 in progress, 3 joined.
gauge gpu_recovery_action Recovery that the driver requests: 0 none, 1 reset, 2 reboot, 3 drain, 4 drain, reset.
counter gpu_ecc_errors_total Memory errors in the life of the GPU.
counter gpu_ecc_volatile_errors_total Memory errors since the driver was loaded.
counter gpu_remapped_rows_total Rows of memory that were replaced in the life of the GPU.
gauge gpu_row_remap_pending 1 if a row will be replaced at the next reset.
gauge gpu_row_remap_failed 1 if a row could not be replaced.
counter gpu_retired_pages_total Memory pages retired in the life of the GPU.
gauge gpu_retired_pages_pending 1 if a page will be retired at the next reboot.
gauge gpu_graphics_active_ratio Share of time in which any engine for compute or graphics worked.
gauge gpu_sm_active_ratio Share of time and of multiprocessors in which one had a warp.
gauge gpu_sm_occupancy_ratio Warps on the multiprocessors as a share of what they can hold.
gauge gpu_dram_active_ratio Bandwidth of the memory in use as a share of what it has.
gauge gpu_pipe_active_ratio Share of time in which a kind of arithmetic unit worked.
gauge gpu_mig_info What a GPU instance is; the value is always 1.
gauge gpu_mig_memory_total_bytes Memory of the GPU instance.
gauge gpu_mig_memory_used_bytes Memory of the GPU instance in use by programs.
gauge gpu_mig_memory_free_bytes Memory of the GPU instance that can still be allocated.
gauge gpu_mig_memory_reserved_bytes Memory of the GPU instance reserved by the driver.
gauge gpu_mig_graphics_active_ratio As gpu_graphics_active_ratio, of the GPU instance.
gauge gpu_mig_sm_active_ratio As gpu_sm_active_ratio, of the GPU instance.
gauge gpu_mig_sm_occupancy_ratio As gpu_sm_occupancy_ratio, of the GPU instance.
gauge gpu_mig_dram_active_ratio As gpu_dram_active_ratio, of the GPU instance.
gauge gpu_mig_pipe_active_ratio As gpu_pipe_active_ratio, of the GPU instance.
gauge gpu_processes Processes that use the GPU.
gauge gpu_process_memory_bytes Memory of the GPU that a process holds.
gauge gpu_process_sm_utilization_ratio Share of time in which a kernel of the process ran.
gauge gpu_exporter_unsupported Values that this GPU or driver does not provide; the value is always 1.
counter gpu_exporter_collect_errors_total Failed calls that the driver supports.
gauge gpu_exporter_collect_duration_seconds Duration of the slowest GPU's last read.
gauge gpu_exporter_driver_latency_seconds Slowest driver call of the last read.
""")  # noqa: E501  (a help text is one line)
"""What is read of the GPUs, in the order in which it is written."""

FRONT_FAMILIES = _families("""
gauge gpu_devices GPUs that the driver lists.
gauge gpu_devices_expected Expected GPUs: as configured, or the most that were listed.
gauge gpu_up 1 if the GPU could be read, else 0 with the reason.
counter gpu_xid_errors_total Critical Xid errors since the exporter started.
gauge gpu_xid_last_timestamp_seconds Time of the last Xid error.
gauge gpu_exporter_build_info Version; the value is always 1.
gauge gpu_exporter_nvml_up 1 if the driver's library NVML answers, else 0 with the reason.
gauge gpu_exporter_last_collect_timestamp_seconds When the GPUs were last read.
gauge gpu_exporter_call_hung A driver call that does not return; the value is always 1.
counter gpu_exporter_nvml_reinit_total How often NVML was closed and opened again.
gauge gpu_exporter_config_last_reload_successful 1 if the last settings were valid.
gauge gpu_exporter_config_last_reload_success_timestamp_seconds When settings were last applied.
""")
"""What is known of them all, and of the exporter."""
(DEVICES, EXPECTED, UP, XIDS, XID_TIME, BUILD, NVML_UP, COLLECTED, HUNG, REINITS, SETTINGS, SETTINGS_AT) = (
    FRONT_FAMILIES
)
