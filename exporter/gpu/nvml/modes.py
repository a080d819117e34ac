"""How a GPU is set, and how fast its fans turn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml import errors, library
from exporter.gpu.nvml.probes import Call, asked, number, one, parts

_MOST_FAN_PERCENT = 1000
"""More than 100 is possible: it is the share of a speed at which the fan makes no noise."""


def _current(call: str, metric: str) -> Call:
    """A mode of which NVML tells what is and what will be after a reset."""
    return Call(call, Tier.SLOW, partial(_first, call, metric))


def _first(call: str, metric: str, handle: Any) -> Iterator[Reading]:
    yield Reading(metric, number(library.ask(handle, call)[0], most=1))


def _fans(handle: Any) -> Any:
    count = library.ask(handle, "GetNumFans")
    if not count:
        raise library.Error(errors.NOT_SUPPORTED)
    ways = {
        ("fan", str(fan)): asked("GetFanSpeed_v2", fan, per=100, most=_MOST_FAN_PERCENT)
        for fan in range(count)
    }
    return parts(handle, "GetFanSpeed", "gpu_fan_speed_ratio", ways)


CALLS = (
    one("GetPerformanceState", Tier.SLOW, "gpu_performance_state", most=15),
    one("GetComputeMode", Tier.SLOW, "gpu_compute_mode", most=3),
    one("GetPersistenceMode", Tier.SLOW, "gpu_persistence_mode", most=1),
    _current("GetMigMode", "gpu_mig_mode"),
    _current("GetEccMode", "gpu_ecc_mode"),
    Call("GetFanSpeed", Tier.SLOW, _fans),
)
