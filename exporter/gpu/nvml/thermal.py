"""How warm a GPU is and may be, and why clocks are held down, now and since the driver was loaded."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from exporter.gpu.backend import CLOCK_EVENTS, Reading, Tier
from exporter.gpu.nvml import library
from exporter.gpu.nvml.fields import Batch, Field, FieldId
from exporter.gpu.nvml.probes import Call, asked, either, number, parts

Version = tuple[int, ...]

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


CALLS = (
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
_NUMBERS: tuple[tuple[Version, Version, int], ...] = (
    ((575,), (580, 65), 251),
    ((580, 82), (9999,), 269),
)
"""From which driver to which the numbers of the kinds begin where.

NVIDIA moved them within a branch: power smoothing took 251 to 253, and answers there with numbers that
look as good. Read off ``nvidia-ml-py`` 12.570.86, 12.575.51, 13.580.65 and 13.580.82. Between the last two
no one can know.
"""


def version(text: str) -> Version:
    """A driver's version as two numbers; empty if there is none."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()


def fields(driver: Version) -> Iterator[Field]:
    """The memory's temperature, and the seconds of throttling by what this driver can report."""
    yield Field("memory_temperature", "gpu_temperature_celsius", (FieldId(82),), {"sensor": "memory"})
    kinds = next(
        (dict(enumerate(_KINDS, first)) for oldest, newest, first in _NUMBERS if oldest <= driver <= newest),
        _SUM,
    )
    for field, reason in {**_ALWAYS, **kinds}.items():
        labels, nanoseconds = {"reason": reason}, (FieldId(field, 1e9),)
        yield Field("throttling", "gpu_clock_event_seconds_total", nanoseconds, labels, wide=True)
