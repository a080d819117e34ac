"""A GPU's own values: what it is, its clocks, power, memory, modes, activity and heat."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from exporter.gpu.backend import CLOCK_EVENTS, Reading, Tier
from exporter.gpu.nvml import library
from exporter.gpu.nvml.library import Batch, Call, Field, FieldId, Probe, asked, either, number, one, parts

HOPPER = 9
_ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    HOPPER: "hopper",
    10: "blackwell",
    13: "rubin",
}
_UNKNOWN_ARCHITECTURE = 0xFFFFFFFF


def bus_id(handle: Any) -> str:
    """Where the GPU sits: what it is found again by, since its number may change."""
    found = library.ask(handle, "GetPciInfo").busId
    return found.decode() if isinstance(found, bytes) else str(found)


def architecture(handle: Any) -> int:
    """NVML's number of it, 0 if that is not known. Raises ``library.Error``."""
    found = int(_or(0, lambda handle: library.ask(handle, "GetArchitecture"))(handle))
    return 0 if found == _UNKNOWN_ARCHITECTURE else found


def _or(default: Any, ask: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Something that some GPUs lack."""
    return either(ask, lambda _: default)


def identity(*, serial: bool) -> Call:
    """What distinguishes a GPU from others; with its serial number only if that is wanted."""

    def read(handle: Any) -> Iterator[Reading]:
        kind = architecture(handle)
        optional = {
            "compute_capability": lambda handle: "{}.{}".format(
                *library.ask(handle, "GetCudaComputeCapability")
            ),
            "vbios_version": lambda handle: library.ask(handle, "GetVbiosVersion"),
        }
        if serial:
            optional["serial"] = lambda handle: library.ask(handle, "GetSerial")
        labels = {
            "name": library.ask(handle, "GetName"),
            "pci_bus_id": bus_id(handle),
            "architecture": _ARCHITECTURES.get(kind, str(kind or "")),
            **{label: str(_or("", ask)(handle)) for label, ask in optional.items()},
        }
        yield Reading("gpu_info", 1, labels)

    return Call("GetName", Tier.STATIC, read)


_DOMAINS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}


def _clocks(call: str, tier: Tier, metric: str) -> Call:
    probes = {name: _hertz(asked(call, domain)) for name, domain in _DOMAINS.items()}
    return Call(call, tier, lambda handle: parts(handle, call, metric, "domain", probes))


def _hertz(megahertz: Probe) -> Probe:
    return lambda handle: megahertz(handle) * 1e6


CLOCKS = (
    _clocks("GetMaxClockInfo", Tier.STATIC, "gpu_clock_max_hertz"),
    _clocks("GetClockInfo", Tier.FAST, "gpu_clock_hertz"),
)

_MILLI = 1e3


def _limits(handle: Any) -> Iterator[Reading]:
    found = library.ask(handle, "GetPowerManagementLimitConstraints")
    for limit, milliwatts in zip(("min", "max"), found, strict=True):
        yield Reading("gpu_power_limit_watts", number(milliwatts) / _MILLI, {"limit": limit})


POWER = (
    one(
        "GetPowerManagementDefaultLimit",
        Tier.STATIC,
        "gpu_power_limit_watts",
        {"limit": "default"},
        per=_MILLI,
    ),
    Call("GetPowerManagementLimitConstraints", Tier.STATIC, _limits),
    one("GetPowerUsage", Tier.FAST, "gpu_power_watts", per=_MILLI),
    one("GetTotalEnergyConsumption", Tier.FAST, "gpu_energy_joules_total", per=_MILLI),
    one("GetPowerManagementLimit", Tier.SLOW, "gpu_power_limit_watts", {"limit": "requested"}, per=_MILLI),
    one("GetEnforcedPowerLimit", Tier.SLOW, "gpu_power_limit_watts", {"limit": "enforced"}, per=_MILLI),
)


def _ratio(percent: float) -> float:
    """A share. Drivers have answered 808334905 %."""
    return number(percent, most=100) / 100


def _utilization(handle: Any) -> Iterator[Reading]:
    found = library.ask(handle, "GetUtilizationRates")
    yield Reading("gpu_utilization_ratio", _ratio(found.gpu))
    yield Reading("gpu_memory_controller_utilization_ratio", _ratio(found.memory))


# Percent, and the microseconds that they were measured over.
_ENGINE_PROBES: dict[str, Probe] = {
    label: lambda handle, name=name: _ratio(library.ask(handle, f"Get{name}Utilization")[0])  # type: ignore[misc]
    for label, name in {"encoder": "Encoder", "decoder": "Decoder", "jpeg": "Jpg", "ofa": "Ofa"}.items()
}

ACTIVITY = (
    Call("GetUtilizationRates", Tier.FAST, _utilization),
    Call(
        "GetEngineUtilization",
        Tier.SLOW,
        lambda handle: parts(
            handle, "GetEngineUtilization", "gpu_engine_utilization_ratio", "engine", _ENGINE_PROBES
        ),
    ),
)

_MEMORY_VERSION_2 = 0x2000028


def _memory(*parts: str, arguments: tuple[int, ...] = ()) -> Callable[[Any], list[Reading]]:
    def read(handle: Any) -> list[Reading]:
        found = library.ask(handle, "GetMemoryInfo", *arguments)
        return [Reading(f"gpu_memory_{part}_bytes", number(getattr(found, part))) for part in parts]

    return read


memory = either(
    _memory("total", "used", "free", "reserved", arguments=(_MEMORY_VERSION_2,)),
    _memory("total", "used", "free"),
)
"""The memory of a GPU, or of an instance that it is split into.

Before driver 510 it counts what is reserved as used.
"""

_MOST_FAN_PERCENT = 1000
"""More than 100 is possible: it is the share of a speed at which the fan makes no noise."""


def _current(call: str, metric: str) -> Call:
    """A mode of which NVML gives what is and what will be after a reset."""
    return Call(
        call, Tier.SLOW, lambda handle: [Reading(metric, number(library.ask(handle, call)[0], most=1))]
    )


def _fans(handle: Any) -> Any:
    count = library.ask(handle, "GetNumFans")
    if not count:
        raise library.Error(library.NOT_SUPPORTED)
    probes = {str(fan): asked("GetFanSpeed_v2", fan, per=100, most=_MOST_FAN_PERCENT) for fan in range(count)}
    return parts(handle, "GetFanSpeed", "gpu_fan_speed_ratio", "fan", probes)


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


def _fabric_since_550(handle: Any) -> int:
    found = _Fabric2(0x2000024)
    library.fill(handle, "GetGpuFabricInfoV", ctypes.byref(found))
    return int(found.state)


def _fabric_before_550(handle: Any) -> int:
    """Goes with CUDA 14."""
    found = _Fabric()
    library.fill(handle, "GetGpuFabricInfo", ctypes.byref(found))
    return int(found.state)


_fabric_state = either(_fabric_since_550, _fabric_before_550)

FABRIC = (
    Call(
        "GetGpuFabricInfo",
        Tier.SLOW,
        lambda handle: [Reading("gpu_fabric_state", number(_fabric_state(handle), most=3))],
    ),
)


def _counts(part: str, metric: str, label: str, numbers: dict[str, int]) -> Iterator[Field]:
    return (Field(part, metric, (FieldId(field),), {label: name}) for name, field in numbers.items())


FAST_FIELDS = (Field("power_instant", "gpu_power_instant_watts", (FieldId(186, _MILLI),)),)
SLOW_FIELDS = (
    *_counts("ecc", "gpu_ecc_volatile_errors_total", "type", {"corrected": 3, "uncorrected": 4}),
    *_counts("ecc", "gpu_ecc_errors_total", "type", {"corrected": 5, "uncorrected": 6}),
    *_counts("row_remap", "gpu_remapped_rows_total", "cause", {"correctable": 142, "uncorrectable": 143}),
    Field("row_remap", "gpu_row_remap_pending", (FieldId(144),)),
    Field("row_remap", "gpu_row_remap_failed", (FieldId(145),)),
    *_counts("retired_pages", "gpu_retired_pages_total", "cause", {"single_bit": 29, "double_bit": 30}),
    Field("retired_pages", "gpu_retired_pages_pending", (FieldId(31),)),
    Field("recovery_action", "gpu_recovery_action", (FieldId(230),)),
    Field("pcie_replays", "gpu_pcie_replays_total", (FieldId(94),)),
)


DriverVersion = tuple[int, ...]

_THRESHOLDS = {"shutdown": 0, "slowdown": 1, "gpu_max": 3}
_OFFSETS = {"shutdown": 193, "slowdown": 194, "gpu_max": 196}
"""Since Ada a threshold is reported as its distance from where the margin is 0."""

_GPU = 0
"""NVML's number of the sensor."""


class _Temperature(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("sensor", ctypes.c_int), ("celsius", ctypes.c_int))


class _Margin(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("celsius", ctypes.c_int))


def _celsius_since_570(handle: Any) -> float:
    found = _Temperature(0x100000C, _GPU)
    library.fill(handle, "GetTemperatureV", ctypes.byref(found))
    return number(found.celsius)


_celsius = either(_celsius_since_570, asked("GetTemperature", _GPU))
"""The second call goes with CUDA 14."""


def _margin_since_ada(handle: Any) -> float:
    """Since Ada and driver 570; below 0 beyond the limit."""
    found = _Margin(0x1000008)
    library.fill(handle, "GetMarginTemperature", ctypes.byref(found))
    return float(found.celsius)


_PROBES = {name: asked("GetTemperatureThreshold", sensor) for name, sensor in _THRESHOLDS.items()}
_margin = either(_margin_since_ada, lambda handle: float(_PROBES["slowdown"](handle) - _celsius(handle)))


def _thresholds(handle: Any) -> Any:
    name = "GetTemperatureThreshold"
    return parts(handle, name, "gpu_temperature_threshold_celsius", "threshold", _PROBES)


def _thresholds_since_ada(handle: Any) -> list[Reading]:
    """Right to one degree: temperature and margin are read one after the other."""
    zero = _celsius(handle) + _margin_since_ada(handle)
    answers = Batch(map(FieldId, _OFFSETS.values())).ask(handle)
    thresholds = [
        Reading("gpu_temperature_threshold_celsius", zero - answer.value, {"threshold": name})
        for name, answer in zip(_OFFSETS, answers, strict=True)
        if answer.value is not None
    ]
    if not thresholds:
        raise library.Error(library.NOT_SUPPORTED)
    return thresholds


_reasons = either(
    partial(library.ask, name="GetCurrentClocksEventReasons"),
    partial(library.ask, name="GetCurrentClocksThrottleReasons"),
)
"""The second name is the one before driver 535, and goes with CUDA 14."""


def _active(handle: Any) -> Iterator[Reading]:
    bits = _reasons(handle)
    for bit, reason in CLOCK_EVENTS.items():
        yield Reading("gpu_clock_event_active", float(bool(bits & bit)), {"reason": reason})


THERMAL = (
    Call("GetCurrentClocksEventReasons", Tier.FAST, _active),
    Call("GetTemperatureThreshold", Tier.STATIC, either(_thresholds, _thresholds_since_ada)),
    Call(
        "GetTemperature",
        Tier.FAST,
        lambda handle: [Reading("gpu_temperature_celsius", _celsius(handle), {"sensor": "gpu"})],
    ),
    Call(
        "GetMarginTemperature",
        Tier.FAST,
        lambda handle: [Reading("gpu_temperature_margin_celsius", _margin(handle))],
    ),
)

_ALWAYS = {74: "power_cap", 76: "sync_boost"}
_SUM = {75: "thermal"}
"""All slowing down for heat: of drivers that do not report its kinds."""

_KINDS = ("software_thermal", "hardware_thermal", "power_brake")
_NUMBERS: tuple[tuple[DriverVersion, DriverVersion, int], ...] = (
    ((575,), (580, 65), 251),
    ((580, 82), (9999,), 269),
)
"""From which driver to which the numbers of the kinds begin where.

NVIDIA moved them within a branch: power smoothing took 251 to 253, and answers there with numbers that
look as good. Read off ``nvidia-ml-py`` 12.570.86, 12.575.51, 13.580.65 and 13.580.82. Between the last two
no one can know.
"""


def driver_version(text: str) -> DriverVersion:
    """A driver's version as two numbers; empty if there is none."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()


def throttling_fields(driver: DriverVersion) -> Iterator[Field]:
    """The memory's temperature, and the seconds of throttling by what this driver can report."""
    yield Field("memory_temperature", "gpu_temperature_celsius", (FieldId(82),), {"sensor": "memory"})
    kinds = next(
        (dict(enumerate(_KINDS, first)) for oldest, newest, first in _NUMBERS if oldest <= driver <= newest),
        _SUM,
    )
    for field, reason in {**_ALWAYS, **kinds}.items():
        labels, nanoseconds = {"reason": reason}, (FieldId(field, 1e9),)
        yield Field("throttling", "gpu_clock_event_seconds_total", nanoseconds, labels, wide=True)
