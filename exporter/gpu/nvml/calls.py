"""Every call that is made for a GPU, and the answers that need no module of their own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from exporter.gpu.backend import Extras, Reading, Tier
from exporter.gpu.nvml import (
    errors,
    gpm,
    identity,
    library,
    links,
    memory,
    mig,
    pcie,
    processes,
    samples,
    temperature,
    throttling,
)
from exporter.gpu.nvml.batch import Way
from exporter.gpu.nvml.fields import Field, Fields
from exporter.gpu.nvml.probes import Call, asked, either, number, one, parts

POWER_FIELDS = (Field("power_instant", "gpu_power_instant_watts", (Way(186, 1e3),)),)


def _limit(call: str, tier: Tier, limit: str) -> Call:
    return one(call, tier, "gpu_power_limit_watts", {"limit": limit}, per=1e3)


def _range(handle: Any) -> Iterator[Reading]:
    found = library.ask(handle, "GetPowerManagementLimitConstraints")
    for limit, milliwatts in zip(("min", "max"), found, strict=True):
        yield Reading("gpu_power_limit_watts", number(milliwatts) / 1e3, {"limit": limit})


POWER = (
    _limit("GetPowerManagementDefaultLimit", Tier.STATIC, "default"),
    Call("GetPowerManagementLimitConstraints", Tier.STATIC, _range),
    one("GetPowerUsage", Tier.FAST, "gpu_power_watts", per=1e3),
    one("GetTotalEnergyConsumption", Tier.FAST, "gpu_energy_joules_total", per=1e3),
    _limit("GetPowerManagementLimit", Tier.SLOW, "requested"),
    _limit("GetEnforcedPowerLimit", Tier.SLOW, "enforced"),
)


_MOST_FAN_PERCENT = 1000
"""More than 100 is possible: it is the share of a speed at which the fan makes no noise."""


def _current(call: str, metric: str) -> Call:
    """A mode of which NVML tells what is and what will be after a reset."""
    return Call(call, Tier.SLOW, partial(_first, call, metric))


def _first(call: str, metric: str, handle: Any) -> Iterator[Reading]:
    yield Reading(metric, number(library.ask(handle, call)[0], most=1))


def _fans(handle: Any) -> Any:
    count = library.ask(handle, "GetNumFans")
    if not count:
        raise library.Error(errors.NOT_SUPPORTED)
    ways = {
        ("fan", str(fan)): asked("GetFanSpeed_v2", fan, per=100, most=_MOST_FAN_PERCENT)
        for fan in range(count)
    }
    return parts(handle, "GetFanSpeed", "gpu_fan_speed_ratio", ways)


MODES = (
    one("GetPerformanceState", Tier.SLOW, "gpu_performance_state", most=15),
    one("GetComputeMode", Tier.SLOW, "gpu_compute_mode", most=3),
    one("GetPersistenceMode", Tier.SLOW, "gpu_persistence_mode", most=1),
    _current("GetMigMode", "gpu_mig_mode"),
    _current("GetEccMode", "gpu_ecc_mode"),
    Call("GetFanSpeed", Tier.SLOW, _fans),
)


class _Fabric(ctypes.Structure):
    _fields_ = (
        ("cluster", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint32),
        ("state", ctypes.c_uint),
    )


class _Fabric2(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), *_Fabric._fields_, ("health", ctypes.c_uint32))


def _state(handle: Any) -> float:
    found = _Fabric2(0x2000024)
    library.fill(handle, "GetGpuFabricInfoV", ctypes.byref(found))
    return float(found.state)


def _state_before(handle: Any) -> float:
    """The way before driver 550; goes with CUDA 14."""
    found = _Fabric()
    library.fill(handle, "GetGpuFabricInfo", ctypes.byref(found))
    return float(found.state)


_either_state = either(_state, _state_before)


def _fabric(handle: Any) -> Iterator[Reading]:
    yield Reading("gpu_fabric_state", number(_either_state(handle), most=3))


FABRIC = (Call("GetGpuFabricInfo", Tier.SLOW, _fabric),)


_DOMAINS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}


def _clocks(call: str, tier: Tier, metric: str) -> Call:
    ways = {("domain", name): _hertz(asked(call, number)) for name, number in _DOMAINS.items()}
    return Call(call, tier, lambda handle: parts(handle, call, metric, ways))


def _hertz(ask: Callable[[Any], float]) -> Callable[[Any], float]:
    """NVML counts in MHz."""
    return lambda handle: ask(handle) * 1e6


CLOCKS = (
    _clocks("GetMaxClockInfo", Tier.STATIC, "gpu_clock_max_hertz"),
    _clocks("GetClockInfo", Tier.FAST, "gpu_clock_hertz"),
)


def _counts(part: str, metric: str, label: str, numbers: dict[str, int]) -> Iterator[Field]:
    return (Field(part, metric, (Way(number),), {label: name}) for name, number in numbers.items())


FIELDS = (
    *_counts("ecc", "gpu_ecc_volatile_errors_total", "type", {"corrected": 3, "uncorrected": 4}),
    *_counts("ecc", "gpu_ecc_errors_total", "type", {"corrected": 5, "uncorrected": 6}),
    *_counts("row_remap", "gpu_remapped_rows_total", "cause", {"correctable": 142, "uncorrectable": 143}),
    Field("row_remap", "gpu_row_remap_pending", (Way(144),)),
    Field("row_remap", "gpu_row_remap_failed", (Way(145),)),
    *_counts("retired_pages", "gpu_retired_pages_total", "cause", {"single_bit": 29, "double_bit": 30}),
    Field("retired_pages", "gpu_retired_pages_pending", (Way(31),)),
    Field("recovery_action", "gpu_recovery_action", (Way(230),)),
    Field("pcie_replays", "gpu_pcie_replays_total", (Way(94),)),
)


_ENGINES = {"encoder": "Encoder", "decoder": "Decoder", "jpeg": "Jpg", "ofa": "Ofa"}


def _ratio(percent: float) -> float:
    """A share. Drivers have answered 808334905 %."""
    return number(percent, most=100) / 100


def _utilization(handle: Any) -> Iterator[Reading]:
    found = library.ask(handle, "GetUtilizationRates")
    yield Reading("gpu_utilization_ratio", _ratio(found.gpu))
    yield Reading("gpu_memory_controller_utilization_ratio", _ratio(found.memory))


def _engine(name: str) -> Any:
    """Percent, and the microseconds that they were measured over."""
    return lambda handle: _ratio(library.ask(handle, f"Get{name}Utilization")[0])


_ENGINE_WAYS = {("engine", label): _engine(name) for label, name in _ENGINES.items()}


def _engines(handle: Any) -> Any:
    return parts(handle, "GetEngineUtilization", "gpu_engine_utilization_ratio", _ENGINE_WAYS)


ACTIVITY = (
    Call("GetUtilizationRates", Tier.FAST, _utilization),
    Call("GetEngineUtilization", Tier.SLOW, _engines),
)


def calls(handle: Any, extras: Extras, driver: throttling.Version) -> tuple[Call, ...]:
    """All calls for one GPU; some remember what they saw last. Raises ``library.Error``."""
    return (
        *mig.calls(),
        identity.call(serial=extras.serial),
        *CLOCKS,
        *throttling.CALLS,
        *temperature.CALLS,
        *POWER,
        *ACTIVITY,
        *samples.calls(),
        *gpm.calls(),
        *memory.CALLS,
        *MODES,
        *FABRIC,
        *links.Links().calls(each=extras.links),
        *pcie.LINK,
        *processes.calls(extras, driver),
        *_throughput(handle, extras),
        *_fields(extras, driver),
    )


def _throughput(handle: Any, extras: Extras) -> Iterator[Call]:
    """Since Hopper it comes with the other means over the interval, without a wait."""
    if extras.pcie and identity.architecture(handle) < identity.HOPPER:
        yield pcie.Throughput().call()


def _fields(extras: Extras, driver: throttling.Version) -> Iterator[Call]:
    """What can be asked in one go: a batch for each tier. Links that are counted one by one have theirs."""
    traffic, mistakes = ((), ()) if extras.links else (links.traffic(), links.mistakes())
    fast = Fields((*POWER_FIELDS, *temperature.FIELDS, *throttling.fields(driver), *traffic))
    slow = Fields((*FIELDS, *mistakes))
    yield Call("GetFieldValues", Tier.FAST, lambda handle: [*fast.read(handle), _latency(fast)])
    yield Call("GetFieldValues(slow)", Tier.SLOW, slow.read)


def _latency(fields: Fields) -> Reading:
    return Reading("gpu_exporter_driver_latency_seconds", fields.latency)
