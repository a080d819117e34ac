"""The fabric of NVLinks and switches that Hopper's boards and later ones have to join."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml import library
from exporter.gpu.nvml.probes import Call, either, number


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


CALLS = (Call("GetGpuFabricInfo", Tier.SLOW, _fabric),)
