"""How warm a GPU is, and how warm it may be."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pynvml

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml import fields
from exporter.gpu.nvml.ways import Call, either, parts, swap

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
    ways = {("threshold", name): partial(swap, ask, number) for name, number in _THRESHOLDS.items()}
    return parts(handle, "GetTemperatureThreshold", "gpu_temperature_threshold_celsius", ways)


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


CALLS = (
    Call("GetTemperatureThreshold", Tier.STATIC, either(_thresholds, _thresholds_from_offsets)),
    Call("GetTemperature", Tier.FAST, _temperature),
    Call("GetMarginTemperature", Tier.FAST, either(_margin, _margin_from_threshold)),
)
