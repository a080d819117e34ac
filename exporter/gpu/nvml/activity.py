"""How busy a GPU is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pynvml

from exporter.gpu.backend import ReadError, Reading, Tier
from exporter.gpu.nvml.ways import Call


def ratio(percent: float) -> float:
    """A share. Drivers have answered 808334905 %."""
    if not 0 <= percent <= 100:
        raise ReadError("garbage")
    return percent / 100


def _utilization(handle: Any) -> Iterator[Reading]:
    found = pynvml.nvmlDeviceGetUtilizationRates(handle)
    yield Reading("gpu_utilization_ratio", ratio(found.gpu))
    yield Reading("gpu_memory_controller_utilization_ratio", ratio(found.memory))


CALLS = (Call("GetUtilizationRates", Tier.FAST, _utilization),)
