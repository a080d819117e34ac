"""How busy a GPU is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml import library
from exporter.gpu.nvml.probes import Call, number, parts

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


CALLS = (
    Call("GetUtilizationRates", Tier.FAST, _utilization),
    Call("GetEngineUtilization", Tier.SLOW, _engines),
)
