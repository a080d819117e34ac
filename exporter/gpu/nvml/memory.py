"""A GPU's memory."""

from __future__ import annotations

from typing import Any

import pynvml

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml.ways import Call, either


def _memory_v2(handle: Any) -> list[Reading]:
    found = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return _memory(found, "total", "used", "free", "reserved")


def _memory_v1(handle: Any) -> list[Reading]:
    """The way before driver 510, which counts what is reserved as used."""
    return _memory(pynvml.nvmlDeviceGetMemoryInfo(handle), "total", "used", "free")


def _memory(found: Any, *parts: str) -> list[Reading]:
    return [Reading(f"gpu_memory_{part}_bytes", getattr(found, part)) for part in parts]


read = either(_memory_v2, _memory_v1)
"""The memory of a GPU, or of an instance that it is split into."""

CALLS = (Call("GetMemoryInfo", Tier.FAST, read),)
