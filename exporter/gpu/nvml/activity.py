"""How busy a GPU is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pynvml

from exporter.gpu.backend import ReadError, Reading, Tier
from exporter.gpu.nvml import fields
from exporter.gpu.nvml.ways import Call


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


def calls() -> tuple[Call, ...]:
    """They remember which samples they saw."""
    return (
        Call("GetUtilizationRates", Tier.FAST, _utilization),
        Call("GetSamples", Tier.FAST, _WindowMax()),
    )
