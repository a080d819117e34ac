"""How warm a GPU is, and how warm it may be."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml import errors, library
from exporter.gpu.nvml.batch import Batch, Way
from exporter.gpu.nvml.fields import Field
from exporter.gpu.nvml.probes import Call, asked, either, number, parts

FIELDS = (Field("memory_temperature", "gpu_temperature_celsius", (Way(82),), {"sensor": "memory"}),)

_THRESHOLDS = {"shutdown": 0, "slowdown": 1, "gpu_max": 3}
_OFFSETS = {"shutdown": 193, "slowdown": 194, "gpu_max": 196}
"""Since Ada a threshold is reported as its distance from where the margin is 0."""

_GPU = 0
"""NVML's number of the sensor."""


class _Temperature(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("sensor", ctypes.c_int), ("celsius", ctypes.c_int))


class _Margin(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("celsius", ctypes.c_int))


def _celsius_now(handle: Any) -> float:
    """The way since driver 570."""
    found = _Temperature(0x100000C, _GPU)
    library.fill(handle, "GetTemperatureV", ctypes.byref(found))
    return number(found.celsius)


_celsius = either(_celsius_now, asked("GetTemperature", _GPU))
"""The second way goes with CUDA 14."""


def _temperature(handle: Any) -> Iterator[Reading]:
    yield Reading("gpu_temperature_celsius", _celsius(handle), {"sensor": "gpu"})


def _margin_now(handle: Any) -> float:
    """The way since Ada and driver 570; below 0 beyond the limit."""
    found = _Margin(0x1000008)
    library.fill(handle, "GetMarginTemperature", ctypes.byref(found))
    return float(found.celsius)


def _margin_from_threshold(handle: Any) -> float:
    """The way before Ada."""
    return float(_threshold("slowdown")(handle) - _celsius(handle))


def _threshold(name: str) -> Any:
    return asked("GetTemperatureThreshold", _THRESHOLDS[name])


_margin_celsius = either(_margin_now, _margin_from_threshold)


def _margin(handle: Any) -> Iterator[Reading]:
    yield Reading("gpu_temperature_margin_celsius", _margin_celsius(handle))


def _thresholds(handle: Any) -> Any:
    ways = {("threshold", name): _threshold(name) for name in _THRESHOLDS}
    return parts(handle, "GetTemperatureThreshold", "gpu_temperature_threshold_celsius", ways)


def _thresholds_from_offsets(handle: Any) -> list[Reading]:
    """The way since Ada. Right to one degree: temperature and margin are read one after the other."""
    zero = _celsius(handle) + _margin_now(handle)
    answers = Batch(map(Way, _OFFSETS.values())).ask(handle)
    thresholds = [
        Reading("gpu_temperature_threshold_celsius", zero - answer.value, {"threshold": name})
        for name, answer in zip(_OFFSETS, answers, strict=True)
        if answer.value is not None
    ]
    if not thresholds:
        raise library.Error(errors.NOT_SUPPORTED)
    return thresholds


CALLS = (
    Call("GetTemperatureThreshold", Tier.STATIC, either(_thresholds, _thresholds_from_offsets)),
    Call("GetTemperature", Tier.FAST, _temperature),
    Call("GetMarginTemperature", Tier.FAST, _margin),
)
