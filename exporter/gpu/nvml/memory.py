"""A GPU's memory."""

from __future__ import annotations

from typing import Any

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml import library
from exporter.gpu.nvml.probes import Call, either, number

_VERSION_2 = 0x2000028


def _memory_v2(handle: Any) -> list[Reading]:
    found = library.ask(handle, "GetMemoryInfo", _VERSION_2)
    return _memory(found, "total", "used", "free", "reserved")


def _memory_v1(handle: Any) -> list[Reading]:
    """The way before driver 510, which counts what is reserved as used."""
    return _memory(library.ask(handle, "GetMemoryInfo"), "total", "used", "free")


def _memory(found: Any, *parts: str) -> list[Reading]:
    return [Reading(f"gpu_memory_{part}_bytes", number(getattr(found, part))) for part in parts]


read = either(_memory_v2, _memory_v1)
"""The memory of a GPU, or of an instance that it is split into."""

CALLS = (Call("GetMemoryInfo", Tier.FAST, read),)
