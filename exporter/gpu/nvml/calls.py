"""Every call that is made for a GPU; each module behind it turns answers into base units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exporter.gpu.backend import Extras, Reading, Tier
from exporter.gpu.nvml import (
    activity,
    clocks,
    fabric,
    gpm,
    health,
    identity,
    links,
    memory,
    mig,
    modes,
    pcie,
    power,
    processes,
    samples,
    temperature,
    throttling,
)
from exporter.gpu.nvml.fields import Fields
from exporter.gpu.nvml.probes import Call


def calls(handle: Any, extras: Extras, driver: throttling.Version) -> tuple[Call, ...]:
    """All calls for one GPU; some remember what they saw last. Raises ``library.Error``."""
    return (
        *mig.calls(),
        identity.call(serial=extras.serial),
        *clocks.CALLS,
        *throttling.CALLS,
        *temperature.CALLS,
        *power.CALLS,
        *activity.CALLS,
        *samples.calls(),
        *gpm.calls(),
        *memory.CALLS,
        *modes.CALLS,
        *fabric.CALLS,
        *links.Links().calls(each=extras.links),
        *pcie.LINK,
        *processes.calls(extras, driver),
        *_throughput(handle, extras),
        *_fields(extras, driver),
    )


def _throughput(handle: Any, extras: Extras) -> Iterator[Call]:
    """Since Hopper it comes with the other means over the interval, without a wait."""
    if extras.pcie and identity.architecture(handle) < identity.HOPPER:
        yield pcie.Throughput().call()


def _fields(extras: Extras, driver: throttling.Version) -> Iterator[Call]:
    """What can be asked in one go: a batch for each tier. Links that are counted one by one have theirs."""
    traffic, mistakes = ((), ()) if extras.links else (links.traffic(), links.mistakes())
    fast = Fields((*power.FIELDS, *temperature.FIELDS, *throttling.fields(driver), *traffic))
    slow = Fields((*health.FIELDS, *mistakes))
    yield Call("GetFieldValues", Tier.FAST, lambda handle: [*fast.read(handle), _latency(fast)])
    yield Call("GetFieldValues(slow)", Tier.SLOW, slow.read)


def _latency(fields: Fields) -> Reading:
    return Reading("gpu_exporter_driver_latency_seconds", fields.latency)
