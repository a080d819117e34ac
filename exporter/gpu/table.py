"""One table of all that the GPU exporter serves, and of how each value of a GPU is asked for.

A line at the margin is a metric: type, name, help. An indented line below it is one of its values:

- how often it is read, and the name under which it is listed where it is missing (``-``: it is not)
- its label, or ``-``
- where it is from; after ``|``, where else if the driver does not know that
- ``/1e3`` or ``*1000``: the scale to the metric's unit; ``max=``: the most that can be meant; ``signed``: it
  may be negative; ``wide``: in 32 bits its counter would wrap within seconds; ``575-580.65``: the drivers in
  which the number means this value, ``570-``: the first that answers. ``{a,b}``: several values.

Where it is from: ``GetEccMode(0)[1]`` or ``.gpu``: NVML's function without ``nvmlDevice``, its argument, and
which part of the answer; in lower case a function of ``exporter.gpu.library``. ``field(82)``: a value with a
number; ``link(202)``: of each NVLink, or of all together; ``sum(38)``: only of all, ``each(161)``: only of
each. ``gpm(2)``: a mean of the GPU's own counters. ``latency``: the slowest of the numbered values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from exporter.gpu.backend import Tier
from exporter.http.exposition import Family

_TABLE = """
gauge gpu_info What the GPU is; the value is always 1.
gauge gpu_driver_info Versions of driver, CUDA and NVML; the value is always 1.
gauge gpu_utilization_ratio Share of the last sample period in which a kernel ran.
  fast GetUtilizationRates - GetUtilizationRates.gpu /100 max=100
gauge gpu_utilization_window_max_ratio Highest utilization sample since the last reading.
gauge gpu_memory_controller_utilization_ratio Share of time in which memory was accessed.
  fast GetUtilizationRates - GetUtilizationRates.memory /100 max=100
gauge gpu_engine_utilization_ratio Share of time in which a video engine worked.
  slow GetEngineUtilization engine={encoder,decoder,jpeg,ofa} Get{Encoder,Decoder,Jpg,Ofa}Utilization[0] /100 max=100
gauge gpu_memory_total_bytes Memory of the board.
  fast GetMemoryInfo - GetMemoryInfo(0x2000028).total|GetMemoryInfo.total
gauge gpu_memory_used_bytes Memory in use by programs.
  fast GetMemoryInfo - GetMemoryInfo(0x2000028).used|GetMemoryInfo.used
gauge gpu_memory_free_bytes Memory that can still be allocated.
  fast GetMemoryInfo - GetMemoryInfo(0x2000028).free|GetMemoryInfo.free
gauge gpu_memory_reserved_bytes Memory reserved by the driver.
  fast GetMemoryInfo - GetMemoryInfo(0x2000028).reserved
gauge gpu_power_watts Power draw of the board, averaged over a second on most GPUs.
  fast GetPowerUsage - GetPowerUsage /1e3
gauge gpu_power_instant_watts Power draw of the board at the time of reading.
  fast FieldValue(power_instant) - field(186) /1e3
gauge gpu_power_limit_watts Limits of the power draw.
  static GetPowerManagementDefaultLimit limit=default GetPowerManagementDefaultLimit /1e3
  static GetPowerManagementLimitConstraints limit={min,max} GetPowerManagementLimitConstraints[{0,1}] /1e3
  slow GetPowerManagementLimit limit=requested GetPowerManagementLimit /1e3
  slow GetEnforcedPowerLimit limit=enforced GetEnforcedPowerLimit /1e3
counter gpu_energy_joules_total Energy used since the driver was loaded.
  fast GetTotalEnergyConsumption - GetTotalEnergyConsumption /1e3
gauge gpu_temperature_celsius Temperature at a sensor.
  fast GetTemperature sensor=gpu temperature
  fast FieldValue(memory_temperature) sensor=memory field(82)
gauge gpu_temperature_threshold_celsius Temperature at which the GPU slows down or stops.
  static GetTemperatureThreshold threshold={shutdown,slowdown,gpu_max} GetTemperatureThreshold({0,1,3})|threshold({193,194,196})
gauge gpu_temperature_margin_celsius Degrees left until the GPU slows down.
  fast GetMarginTemperature - margin|old_margin signed 570-
gauge gpu_clock_hertz Current clock.
  fast GetClockInfo domain={graphics,sm,memory,video} GetClockInfo({0,1,2,3}) *1e6
gauge gpu_clock_max_hertz Highest clock that the GPU can be set to.
  static GetMaxClockInfo domain={graphics,sm,memory,video} GetMaxClockInfo({0,1,2,3}) *1e6
gauge gpu_clock_event_active 1 while clocks are throttled for this reason.
  fast GetCurrentClocksEventReasons reason={idle,application_clocks,power_cap,hardware_slowdown,sync_boost,software_thermal,hardware_thermal,power_brake,display} clock_events[{0,1,2,3,4,5,6,7,8}]
counter gpu_clock_event_seconds_total Time that clocks were throttled since the driver was loaded.
  fast FieldValue(throttling) reason={power_cap,sync_boost} field({74,76}) /1e9 wide
  fast FieldValue(throttling) reason=thermal field(75) /1e9 wide 0-574.999
  fast FieldValue(throttling) reason=thermal field(75) /1e9 wide 580.66-580.81
  fast FieldValue(throttling) reason={software_thermal,hardware_thermal,power_brake} field({251,252,253}) /1e9 wide 575-580.65
  fast FieldValue(throttling) reason={software_thermal,hardware_thermal,power_brake} field({269,270,271}) /1e9 wide 580.82-9999
gauge gpu_performance_state Performance state, from 0 (fastest) to 15.
  slow GetPerformanceState - GetPerformanceState max=15
gauge gpu_compute_mode Compute mode: 0 shared, 2 prohibited, 3 one process at a time.
  slow GetComputeMode - GetComputeMode max=3
gauge gpu_persistence_mode 1 if the driver stays loaded while the GPU is unused (persistence mode).
  slow GetPersistenceMode - GetPersistenceMode max=1
gauge gpu_mig_mode 1 if the GPU is split into instances.
  slow GetMigMode - GetMigMode[0] max=1
gauge gpu_ecc_mode 1 if memory errors are corrected (ECC).
  slow GetEccMode - GetEccMode[0] max=1
gauge gpu_fan_speed_ratio Requested fan speed as a share of full speed; may exceed 1.
gauge gpu_pcie_link_generation Generation of the PCIe link.
  slow GetCurrPcieLinkGeneration kind=current GetCurrPcieLinkGeneration
  static GetMaxPcieLinkGeneration kind=max GetMaxPcieLinkGeneration
gauge gpu_pcie_link_width Lanes of the PCIe link.
  slow GetCurrPcieLinkWidth kind=current GetCurrPcieLinkWidth
  static GetMaxPcieLinkWidth kind=max GetMaxPcieLinkWidth
gauge gpu_pcie_transmit_bytes_per_second Bytes sent over PCIe.
  fast GetPcieThroughput - GetPcieThroughput(0) *1000
  fast GpmSampleGet - gpm(20) *1048576 max=1048576
gauge gpu_pcie_receive_bytes_per_second Bytes received over PCIe.
  fast GetPcieThroughput - GetPcieThroughput(1) *1000
  fast GpmSampleGet - gpm(21) *1048576 max=1048576
counter gpu_pcie_replays_total PCIe packets retransmitted.
  slow FieldValue(pcie_replays) - field(94)
gauge gpu_nvlink_links NVLinks by state.
counter gpu_nvlink_transmit_bytes_total Bytes sent over NVLink.
  fast FieldValue(nvlink) - link(202)|link(138)*1024 wide
counter gpu_nvlink_receive_bytes_total Bytes received over NVLink.
  fast FieldValue(nvlink) - link(204)|link(139)*1024 wide
counter gpu_nvlink_errors_total Errors of the NVLinks.
  slow - type={crc_flit,crc_data,replay,recovery,ecc} sum({38,45,52,59,160})
  slow - type={replay,recovery,crc} each({161,162,163})
  slow - type={malformed_packet,buffer_overrun,receive,receive_remote} link({206,207,208,209}) 550-
  slow - type={receive_general,integrity,transmit_discard} link({210,211,212}) 550-
  slow - type={link_recovery_failed,link_recovery,symbol} link({214,215,221}) 550-
gauge gpu_fabric_state State in the NVLink fabric: 0 none, 1 not started, 2 in progress, 3 joined.
  slow GetGpuFabricInfo - fabric|old_fabric max=3
gauge gpu_recovery_action Recovery that the driver requests: 0 none, 1 reset, 2 reboot, 3 drain, 4 drain, reset.
  slow FieldValue(recovery_action) - field(230) 570-
counter gpu_ecc_errors_total Memory errors in the life of the GPU.
  slow FieldValue(ecc) type={corrected,uncorrected} field({5,6})
counter gpu_ecc_volatile_errors_total Memory errors since the driver was loaded.
  slow FieldValue(ecc) type={corrected,uncorrected} field({3,4})
counter gpu_remapped_rows_total Rows of memory that were replaced in the life of the GPU.
  slow FieldValue(row_remap) cause={correctable,uncorrectable} field({142,143})
gauge gpu_row_remap_pending 1 if a row will be replaced at the next reset.
  slow FieldValue(row_remap) - field(144)
gauge gpu_row_remap_failed 1 if a row could not be replaced.
  slow FieldValue(row_remap) - field(145)
counter gpu_retired_pages_total Memory pages retired in the life of the GPU.
  slow FieldValue(retired_pages) cause={single_bit,double_bit} field({29,30})
gauge gpu_retired_pages_pending 1 if a page will be retired at the next reboot.
  slow FieldValue(retired_pages) - field(31)
gauge gpu_graphics_active_ratio Share of time in which any engine for compute or graphics worked.
  fast GpmSampleGet - gpm(1) /100 max=100
gauge gpu_sm_active_ratio Share of time and of multiprocessors in which one had a warp.
  fast GpmSampleGet - gpm(2) /100 max=100
gauge gpu_sm_occupancy_ratio Warps on the multiprocessors as a share of what they can hold.
  fast GpmSampleGet - gpm(3) /100 max=100
gauge gpu_dram_active_ratio Bandwidth of the memory in use as a share of what it has.
  fast GpmSampleGet - gpm(10) /100 max=100
gauge gpu_pipe_active_ratio Share of time in which a kind of arithmetic unit worked.
  fast GpmSampleGet pipe={tensor,fp64,fp32,fp16,int} gpm({5,11,12,13,4}) /100 max=100
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
  fast FieldValue(latency) - latency
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
"""  # noqa: E501  (a help text is one line)

_LINES = _TABLE.strip().splitlines()
FAMILIES = {
    name: Family(name, kind, text)
    for kind, name, text in (line.split(" ", 2) for line in _LINES if line[0] != " ")
}
"""All metrics, in the order in which they are written."""

_SOURCE = re.compile(r"(\w+)(?:\((\w+)\))?(?:\[(\d)\]|\.(\w+))?(?:\*(\d+))?")


class Source(NamedTuple):
    """Where a value is from: the key of the answer, which part of that, and the scale.

    ``key`` is a function with its arguments; or ``field`` with a number and the link; or ``gpm``, number.
    """

    key: tuple[Any, ...]
    part: Callable[[Any], float]
    factor: float


class Row(NamedTuple):
    """A value of the table; ``scope`` is ``link``, ``sum`` or ``each`` where it is of NVLinks."""

    metric: str
    tier: Tier
    name: str
    labels: Mapping[str, str]
    scope: str
    sources: tuple[Source, ...]
    divisor: float
    most: float
    signed: bool
    wide: bool

    def of_link(self, link: int) -> Row:
        """The value of one NVLink instead of all."""
        sources = tuple(each._replace(key=(*each.key[:2], link)) for each in self.sources)
        return self._replace(sources=sources, labels={**self.labels, "link": str(link)})


def driver_version(text: str) -> tuple[int, ...]:
    """A driver's version as two numbers; 0 if there is none."""
    found = re.match(r"(\d+)\.?(\d*)", text)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


@lru_cache(2)  # all GPUs have one
def rows(driver: str | None = None) -> tuple[Row, ...]:
    """The values that this driver may know; all if none is given."""
    metric, found = "", list[Row]()
    for line in _LINES:
        if line[0] != " ":
            metric = line.split(" ", 2)[1]
            continue
        spans = re.findall(r" ([\d.]+)-([\d.]+)", line)
        known = driver_version(driver or "")
        if driver is not None and not all(
            driver_version(first) <= known <= driver_version(last) for first, last in spans
        ):
            continue
        several = max((each.count(",") + 1 for each in re.findall("{(.*?)}", line)), default=1)
        for place in range(several):
            one = re.sub("{(.*?)}", lambda found: found[1].split(",")[place], line)  # noqa: B023  (used at once)
            found.append(_row(metric, *one.split()))
    return tuple(found)


def _row(metric: str, tier: str, name: str, label: str, source: str, *options: str) -> Row:
    found = {each[0]: each[1:] for each in options if each[0] in "*/"}
    most = next((each[4:] for each in options if each.startswith("max=")), "inf")
    return Row(
        metric,
        Tier(tier),
        name.strip("-"),
        dict([label.split("=")]) if "=" in label else {},
        source.partition("(")[0],
        tuple(_source(each, float(found.get("*", 1))) for each in source.split("|")),
        float(found.get("/", 1)),
        float(most),
        "signed" in options,
        "wide" in options,
    )


def _source(text: str, factor: float) -> Source:
    name, argument, index, attribute, times = _SOURCE.findall(text)[0]
    key: tuple[Any, ...] = (name, int(argument, 0)) if argument else (name,)
    if name in ("field", "link", "sum", "each"):  # the scope is none, or the sum over all NVLinks
        key = ("field", int(argument), 0 if name == "field" else 0xFFFFFFFF)
    part = itemgetter(int(index)) if index else attrgetter(attribute) if attribute else float
    return Source(key, part, factor * float(times or 1))


CLOCK_EVENTS = tuple(row.labels["reason"] for row in rows() if row.metric == "gpu_clock_event_active")
"""Why clocks are throttled."""
