"""Every call that is made for a GPU, and what becomes of its answer, in base units.

One list names them: ``calls``. Each function takes NVML's handle and raises ``NVMLError`` where the
driver has no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pynvml

from exporter.gpu.backend import Missing, ReadError, Reading, Tier
from exporter.gpu.nvml import errors, fields

Read = Callable[[Any], Iterable[Reading | Missing]]


class Call(NamedTuple):
    """A way to ask a GPU for something; ``name`` is NVML's, without ``nvmlDevice``."""

    name: str
    tier: Tier
    read: Read


_NOT_HERE = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
)
_ARCHITECTURES = {
    value: name.removeprefix("NVML_DEVICE_ARCH_").lower()
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_DEVICE_ARCH_")
}
_CLOCKS = {
    "graphics": pynvml.NVML_CLOCK_GRAPHICS,
    "sm": pynvml.NVML_CLOCK_SM,
    "memory": pynvml.NVML_CLOCK_MEM,
    "video": pynvml.NVML_CLOCK_VIDEO,
}
_THRESHOLDS = {
    "shutdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
    "slowdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
    "gpu_max": pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX,
}
_OFFSETS = {
    pynvml.NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT: "shutdown",
    pynvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT: "slowdown",
    pynvml.NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT: "gpu_max",
}
"""Since Ada a threshold is told as its distance from where the margin is 0."""


def calls() -> tuple[Call, ...]:
    """All calls for one GPU; some remember what they saw last."""
    return (
        Call("GetName", Tier.STATIC, _identity),
        Call("GetMaxClockInfo", Tier.STATIC, _clocks("GetMaxClockInfo", "gpu_clock_max_hertz")),
        Call("GetTemperatureThreshold", Tier.STATIC, either(_thresholds, _thresholds_from_offsets)),
        Call(
            "GetPowerManagementDefaultLimit", Tier.STATIC, _power_limit("default", "ManagementDefaultLimit")
        ),
        Call("GetPowerManagementLimitConstraints", Tier.STATIC, _power_range),
        Call("GetUtilizationRates", Tier.FAST, _utilization),
        Call("GetSamples", Tier.FAST, _WindowMax()),
        Call("GetMemoryInfo", Tier.FAST, either(_memory_v2, _memory_v1)),
        Call("GetPowerUsage", Tier.FAST, _power),
        Call("GetTotalEnergyConsumption", Tier.FAST, _energy),
        Call("GetTemperature", Tier.FAST, _temperature),
        Call("GetMarginTemperature", Tier.FAST, either(_margin, _margin_from_threshold)),
        Call("GetClockInfo", Tier.FAST, _clocks("GetClockInfo", "gpu_clock_hertz")),
        Call("GetFieldValues", Tier.FAST, partial(fields.read, fields=fields.FAST)),
        Call("GetPowerManagementLimit", Tier.SLOW, _power_limit("requested", "ManagementLimit")),
        Call("GetEnforcedPowerLimit", Tier.SLOW, _enforced_limit),
    )


def either(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The first way where this GPU and driver have it, else the second; found out anew each time."""

    def ask(handle: Any) -> Any:
        try:
            return first(handle)
        except pynvml.NVMLError as error:
            if error.value not in _NOT_HERE:
                raise
        return second(handle)

    return ask


def _parts(
    handle: Any, call: str, metric: str, ways: Mapping[tuple[str, str], Callable[[Any], float]]
) -> Any:
    """A reading for each label and its way, as far as the GPU has it.

    Raises:
        NVMLError: it has none of them.
    """
    found = [_part(handle, call, metric, label, way) for label, way in ways.items()]
    if not any(isinstance(each, Reading) for each in found):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return found


def _part(
    handle: Any, call: str, metric: str, label: tuple[str, str], way: Callable[[Any], float]
) -> Reading | Missing:
    try:
        return Reading(metric, way(handle), dict([label]))
    except pynvml.NVMLError as error:
        if error.value not in _NOT_HERE:
            raise
        return Missing(f"{call}({label[1]})", errors.name(error.value))


def _identity(handle: Any) -> Iterator[Reading]:
    labels = {
        "name": pynvml.nvmlDeviceGetName(handle),
        "pci_bus_id": bus_id(handle),
        "architecture": _told(_architecture, handle),
        "compute_capability": _told(_compute_capability, handle),
        "vbios_version": _told(pynvml.nvmlDeviceGetVbiosVersion, handle),
    }
    yield Reading("gpu_info", 1, labels)


def bus_id(handle: Any) -> str:
    """Where the GPU sits: what it is found again by, since its number may change."""
    found = pynvml.nvmlDeviceGetPciInfo(handle).busId
    return found.decode() if isinstance(found, bytes) else str(found)


def _told(ask: Callable[[Any], str], handle: Any) -> str:
    """A label that some GPUs lack."""
    return str(either(ask, lambda _: "")(handle))


def _architecture(handle: Any) -> str:
    number = pynvml.nvmlDeviceGetArchitecture(handle)
    return str(_ARCHITECTURES.get(number, number))


def _compute_capability(handle: Any) -> str:
    return "{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle))


def _ratio(percent: float) -> float:
    """A share. Drivers have answered 808334905 %."""
    if not 0 <= percent <= 100:
        raise ReadError("garbage")
    return percent / 100


def _utilization(handle: Any) -> Iterator[Reading]:
    found = pynvml.nvmlDeviceGetUtilizationRates(handle)
    yield Reading("gpu_utilization_ratio", _ratio(found.gpu))
    yield Reading("gpu_memory_controller_utilization_ratio", _ratio(found.memory))


class _WindowMax:
    """The highest of the samples that the driver took since the last reading."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, handle: Any) -> list[Reading]:
        try:
            kind, samples = pynvml.nvmlDeviceGetSamples(
                handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, self._last
            )
        except pynvml.NVMLError_NotFound:
            return []
        new = [sample for sample in samples if sample.timeStamp > self._last]
        self._last = max((sample.timeStamp for sample in new), default=self._last)
        highest = max((fields.value(kind, sample.sampleValue) for sample in new), default=None)
        return [] if highest is None else [Reading("gpu_utilization_window_max_ratio", _ratio(highest))]


def _memory_v2(handle: Any) -> list[Reading]:
    found = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return _memory(found, "total", "used", "free", "reserved")


def _memory_v1(handle: Any) -> list[Reading]:
    """The way before driver 510, which counts what is reserved as used."""
    return _memory(pynvml.nvmlDeviceGetMemoryInfo(handle), "total", "used", "free")


def _memory(found: Any, *parts: str) -> list[Reading]:
    return [Reading(f"gpu_memory_{part}_bytes", getattr(found, part)) for part in parts]


def _power(handle: Any) -> Iterator[Reading]:
    yield Reading("gpu_power_watts", pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3)


def _power_limit(label: str, call: str) -> Read:
    ask = getattr(pynvml, f"nvmlDeviceGetPower{call}")
    return lambda handle: [_limit(label, ask(handle))]


def _enforced_limit(handle: Any) -> Iterator[Reading]:
    yield _limit("enforced", pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))


def _power_range(handle: Any) -> Iterator[Reading]:
    least, most = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    yield from (_limit("min", least), _limit("max", most))


def _limit(label: str, milliwatts: float) -> Reading:
    return Reading("gpu_power_limit_watts", milliwatts / 1e3, {"limit": label})


def _energy(handle: Any) -> Iterator[Reading]:
    yield Reading("gpu_energy_joules_total", pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3)


_celsius = either(
    lambda handle: pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU),
    lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
)


def _temperature(handle: Any) -> Iterator[Reading]:
    yield Reading("gpu_temperature_celsius", _celsius(handle), {"sensor": "gpu"})


def _margin(handle: Any) -> list[Reading]:
    return [Reading("gpu_temperature_margin_celsius", pynvml.nvmlDeviceGetMarginTemperature(handle))]


def _margin_from_threshold(handle: Any) -> list[Reading]:
    """The way before Ada."""
    slowdown = pynvml.nvmlDeviceGetTemperatureThreshold(handle, _THRESHOLDS["slowdown"])
    return [Reading("gpu_temperature_margin_celsius", slowdown - _celsius(handle))]


def _thresholds(handle: Any) -> Any:
    ask = pynvml.nvmlDeviceGetTemperatureThreshold
    ways = {("threshold", name): partial(_swap, ask, number) for name, number in _THRESHOLDS.items()}
    return _parts(handle, "GetTemperatureThreshold", "gpu_temperature_threshold_celsius", ways)


def _thresholds_from_offsets(handle: Any) -> list[Reading]:
    """The way since Ada. Right to one degree: temperature and margin are read one after the other."""
    zero = _celsius(handle) + pynvml.nvmlDeviceGetMarginTemperature(handle)
    told = [(number, offset) for number, code, offset in fields.ask(handle, tuple(_OFFSETS)) if not code]
    if not told:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return [
        Reading("gpu_temperature_threshold_celsius", zero - offset, {"threshold": _OFFSETS[number]})
        for number, offset in told
    ]


def _clocks(call: str, metric: str) -> Read:
    ask = getattr(pynvml, f"nvmlDevice{call}")
    ways = {("domain", name): partial(_hertz, ask, number) for name, number in _CLOCKS.items()}
    return lambda handle: _parts(handle, call, metric, ways)


def _hertz(ask: Callable[[Any, int], int], number: int, handle: Any) -> float:
    return ask(handle, number) * 1e6


def _swap(ask: Callable[[Any, int], float], number: int, handle: Any) -> float:
    return ask(handle, number)
