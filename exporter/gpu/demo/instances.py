"""The parts of a simulated card that is split (MIG)."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.demo.activity import used_bytes
from exporter.gpu.demo.moment import Moment, dice
from exporter.gpu.demo.part import Part
from exporter.gpu.demo.profiles import Instance
from exporter.gpu.demo.uuids import uuid

RESERVED = 2**25
"""What the driver keeps of each instance for itself."""


def _info(moment: Moment) -> Iterator[Reading]:
    for instance in moment.profile.instances:
        labels = {
            "gpu_instance_id": str(instance.number),
            "compute_instance_id": "0",
            "profile": instance.profile,
            "mig_uuid": uuid("MIG", dice(moment.seed, moment.number, instance.number)),
        }
        yield Reading("gpu_mig_info", 1, labels)


def _memory(moment: Moment) -> Iterator[Reading]:
    for instance in moment.profile.instances:
        label = {"gpu_instance_id": str(instance.number)}
        for part, value in _parts(moment, instance).items():
            yield Reading(f"gpu_mig_memory_{part}_bytes", value, label)


def _parts(moment: Moment, instance: Instance) -> dict[str, float]:
    """What is used of the board is used in its instances, in each as much as it is large."""
    used = used_bytes(moment) * instance.memory // sum(each.memory for each in moment.profile.instances)
    free = instance.memory - RESERVED - used
    return {"total": instance.memory, "used": used, "free": free, "reserved": RESERVED}


PARTS = (
    Part("GetMigDeviceHandleByIndex", Tier.SLOW, _info),
    Part("GetMemoryInfo(mig)", Tier.FAST, _memory),
)
