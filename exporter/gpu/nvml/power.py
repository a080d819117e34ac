"""What a GPU draws, and may draw. NVML counts in mW and mJ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml import library
from exporter.gpu.nvml.batch import Way
from exporter.gpu.nvml.fields import Field
from exporter.gpu.nvml.probes import Call, number, one

FIELDS = (Field("power_instant", "gpu_power_instant_watts", (Way(186, 1e3),)),)


def _limit(call: str, tier: Tier, limit: str) -> Call:
    return one(call, tier, "gpu_power_limit_watts", {"limit": limit}, per=1e3)


def _range(handle: Any) -> Iterator[Reading]:
    found = library.ask(handle, "GetPowerManagementLimitConstraints")
    for limit, milliwatts in zip(("min", "max"), found, strict=True):
        yield Reading("gpu_power_limit_watts", number(milliwatts) / 1e3, {"limit": limit})


CALLS = (
    _limit("GetPowerManagementDefaultLimit", Tier.STATIC, "default"),
    Call("GetPowerManagementLimitConstraints", Tier.STATIC, _range),
    one("GetPowerUsage", Tier.FAST, "gpu_power_watts", per=1e3),
    one("GetTotalEnergyConsumption", Tier.FAST, "gpu_energy_joules_total", per=1e3),
    _limit("GetPowerManagementLimit", Tier.SLOW, "requested"),
    _limit("GetEnforcedPowerLimit", Tier.SLOW, "enforced"),
)
