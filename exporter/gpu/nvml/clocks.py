"""How fast a GPU runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exporter.gpu.backend import Tier
from exporter.gpu.nvml.probes import Call, asked, parts

_DOMAINS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}


def _clocks(call: str, tier: Tier, metric: str) -> Call:
    ways = {("domain", name): _hertz(asked(call, number)) for name, number in _DOMAINS.items()}
    return Call(call, tier, lambda handle: parts(handle, call, metric, ways))


def _hertz(ask: Callable[[Any], float]) -> Callable[[Any], float]:
    """NVML counts in MHz."""
    return lambda handle: ask(handle) * 1e6


CALLS = (
    _clocks("GetMaxClockInfo", Tier.STATIC, "gpu_clock_max_hertz"),
    _clocks("GetClockInfo", Tier.FAST, "gpu_clock_hertz"),
)
