"""The instances that a GPU is split into (MIG)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from exporter.gpu.backend import MIG_CHANGED, CardError, Reading, Tier
from exporter.gpu.nvml import library, values
from exporter.gpu.nvml.library import Call, Found, either
from exporter.gpu.nvml.windows import Window

_GONE = (library.INVALID_ARGUMENT, library.NOT_FOUND)
"""The errors of an instance that is not there, or no longer."""

_mode = either(lambda handle: library.ask(handle, "GetMigMode")[0], lambda _: 0)
_name = either(lambda mig: str(library.ask(mig, "GetName")), lambda _: "")


class Instance(NamedTuple):
    """A compute instance, the GPU instance that it is part of, and what it is: ``1g.18gb``."""

    gpu_instance: int
    compute_instance: int
    profile: str
    uuid: str


class Mig:
    """The instances of one GPU.

    Handles of instances are invalid after a change of the MIG layout, and not all drivers give new ones
    before NVML is reopened. So a change is a ``CardError`` until then, with objects that know nothing of
    how it was.
    """

    def __init__(self) -> None:
        self._split: tuple[int, frozenset[Instance]] | None = None
        self.handles: dict[int, Any] = {}

    def walk(self, handle: Any) -> list[Reading]:
        """What each instance is. Raises ``CardError`` if they are others than they were."""
        mode = _mode(handle)
        found = _instances(handle) if mode else {}
        split = mode, frozenset(found)
        self._split = self._split or split
        if self._split != split:
            raise CardError(MIG_CHANGED)
        self.handles = {each.gpu_instance: mig for each, mig in found.items()}
        names = ("gpu_instance_id", "compute_instance_id", "profile", "mig_uuid")
        return [Reading("gpu_mig_info", 1, dict(zip(names, map(str, each), strict=True))) for each in found]

    def each(self, read: Callable[[int, Any], Iterable[Found]]) -> list[Found]:
        """What is read of each instance that is still there, as a value of the instance."""
        listed: list[Found] = []
        for number, mig in self.handles.items():
            of_instance: list[Found] = []
            with library.ignored(_GONE):
                of_instance = list(read(number, mig))
            for found in of_instance:
                if isinstance(found, Reading):
                    name = found.metric.replace("gpu_", "gpu_mig_", 1)
                    labels = {"gpu_instance_id": str(number), **found.labels}
                    listed.append(Reading(name, found.value, labels))
                else:
                    listed.append(found)
        return listed


def _instances(handle: Any) -> dict[Instance, Any]:
    """Instances and their handles. There may be holes in the numbers."""
    found = {}
    for number in range(library.ask(handle, "GetMaxMigDeviceCount")):
        with library.ignored(_GONE):
            mig = library.ask(handle, "GetMigDeviceHandleByIndex", number)
            instance = Instance(
                gpu_instance=library.ask(mig, "GetGpuInstanceId"),
                compute_instance=library.ask(mig, "GetComputeInstanceId"),
                profile=_name(mig).partition(" MIG ")[2],  # NVML's name ends in it: NVIDIA H200 MIG 1g.18gb
                uuid=str(library.ask(mig, "GetUUID")),
            )
            found[instance] = mig
    return found


def calls() -> tuple[Call, ...]:
    """They remember the instances. First comes what shows whether they are still the same."""
    mig, windows = Mig(), dict[int, Window]()

    def window(number: int, handle: Any) -> Iterable[Found]:
        """Means since the last reading, of what GPUs since Hopper count."""
        if number not in windows:
            sample = partial(library.call, "GpmMigSampleGet")
            windows[number] = Window("GpmMigSampleGet", lambda handle, at: sample(handle, number, at))
        return windows[number](handle)

    def forget() -> None:
        mig.handles = {}
        for each in windows.values():
            each.forget()

    # memory is that of a GPU instance: its compute instances share it
    return (
        Call("GetMigDeviceHandleByIndex", Tier.SLOW, mig.walk, forget=forget),
        Call("GetMemoryInfo(mig)", Tier.FAST, lambda _: mig.each(lambda _, part: values.memory(part))),
        Call("GpmMigSampleGet", Tier.FAST, lambda handle: mig.each(lambda number, _: window(number, handle))),
    )
