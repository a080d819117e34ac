"""How fast a GPU runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pynvml

from exporter.gpu.backend import Tier
from exporter.gpu.nvml.ways import Call, Read, parts

_CLOCKS = {
    "graphics": pynvml.NVML_CLOCK_GRAPHICS,
    "sm": pynvml.NVML_CLOCK_SM,
    "memory": pynvml.NVML_CLOCK_MEM,
    "video": pynvml.NVML_CLOCK_VIDEO,
}


def _clocks(call: str, metric: str) -> Read:
    ask = getattr(pynvml, f"nvmlDevice{call}")
    ways = {("domain", name): partial(_hertz, ask, number) for name, number in _CLOCKS.items()}
    return lambda handle: parts(handle, call, metric, ways)


def _hertz(ask: Callable[[Any, int], int], number: int, handle: Any) -> float:
    return ask(handle, number) * 1e6


CALLS = (
    Call("GetMaxClockInfo", Tier.STATIC, _clocks("GetMaxClockInfo", "gpu_clock_max_hertz")),
    Call("GetClockInfo", Tier.FAST, _clocks("GetClockInfo", "gpu_clock_hertz")),
)
