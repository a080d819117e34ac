"""Every call that is made for a GPU; each module behind it turns answers into base units."""

from __future__ import annotations

from functools import partial

from exporter.gpu.backend import Extras, Tier
from exporter.gpu.nvml import (
    activity,
    clocks,
    fields,
    gpm,
    identity,
    memory,
    mig,
    power,
    processes,
    samples,
    temperature,
)
from exporter.gpu.nvml.ways import Call


def calls(extras: Extras) -> tuple[Call, ...]:
    """All calls for one GPU; some remember what they saw last."""
    return (
        *mig.calls(),
        *identity.CALLS,
        *clocks.CALLS,
        *temperature.CALLS,
        *power.CALLS,
        *activity.CALLS,
        *samples.calls(),
        *gpm.calls(),
        *processes.calls(extras),
        *memory.CALLS,
        Call("GetFieldValues", Tier.FAST, partial(fields.read, fields=fields.FAST)),
    )
