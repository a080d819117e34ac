"""What a GPU draws, and may draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pynvml

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml.ways import Call, Read


def _power(handle: Any) -> Iterator[Reading]:
    yield Reading("gpu_power_watts", pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3)


def _power_limit(label: str, call: str) -> Read:
    ask = getattr(pynvml, f"nvmlDeviceGetPower{call}")
    return lambda handle: [_limit(label, ask(handle))]


def _enforced_limit(handle: Any) -> Iterator[Reading]:
    yield _limit("enforced", pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))


def _power_range(handle: Any) -> Iterator[Reading]:
    least, most = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    yield from (_limit("min", least), _limit("max", most))


def _limit(label: str, milliwatts: float) -> Reading:
    return Reading("gpu_power_limit_watts", milliwatts / 1e3, {"limit": label})


def _energy(handle: Any) -> Iterator[Reading]:
    yield Reading("gpu_energy_joules_total", pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3)


CALLS = (
    Call("GetPowerManagementDefaultLimit", Tier.STATIC, _power_limit("default", "ManagementDefaultLimit")),
    Call("GetPowerManagementLimitConstraints", Tier.STATIC, _power_range),
    Call("GetPowerUsage", Tier.FAST, _power),
    Call("GetTotalEnergyConsumption", Tier.FAST, _energy),
    Call("GetPowerManagementLimit", Tier.SLOW, _power_limit("requested", "ManagementLimit")),
    Call("GetEnforcedPowerLimit", Tier.SLOW, _enforced_limit),
)
