"""How busy a GPU is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml import batch, errors, library
from exporter.gpu.nvml.ways import Call, number, parts

_SAMPLES = 1
"""NVML's number of the samples of utilization."""

_ENGINES = {"encoder": "Encoder", "decoder": "Decoder", "jpeg": "Jpg", "ofa": "Ofa"}


def _ratio(percent: float) -> float:
    """A share. Drivers have answered 808334905 %."""
    return number(percent, most=100) / 100


def _utilization(handle: Any) -> Iterator[Reading]:
    found = library.ask(handle, "GetUtilizationRates")
    yield Reading("gpu_utilization_ratio", _ratio(found.gpu))
    yield Reading("gpu_memory_controller_utilization_ratio", _ratio(found.memory))


def _engine(name: str) -> Any:
    """Percent, and the microseconds that they were measured over."""
    return lambda handle: _ratio(library.ask(handle, f"Get{name}Utilization")[0])


_ENGINE_WAYS = {("engine", label): _engine(name) for label, name in _ENGINES.items()}


def _engines(handle: Any) -> Any:
    return parts(handle, "GetEngineUtilization", "gpu_engine_utilization_ratio", _ENGINE_WAYS)


class _WindowMax:
    """The highest of the samples that the driver took since the last reading."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, handle: Any) -> list[Reading]:
        try:
            kind, samples = library.ask(handle, "GetSamples", _SAMPLES, self._last)
        except library.Error as error:
            if error.value != errors.NOT_FOUND:
                raise
            return []
        new = [sample for sample in samples if sample.timeStamp > self._last]
        self._last = max((sample.timeStamp for sample in new), default=self._last)
        values = [batch.value(kind, bytes(sample.sampleValue)) for sample in new]
        highest = max((each for each in values if each is not None), default=None)
        return [] if highest is None else [Reading("gpu_utilization_window_max_ratio", _ratio(highest))]


def calls() -> tuple[Call, ...]:
    """They remember which samples they saw."""
    return (
        Call("GetUtilizationRates", Tier.FAST, _utilization),
        Call("GetSamples", Tier.FAST, _WindowMax()),
        Call("GetEngineUtilization", Tier.SLOW, _engines),
    )
