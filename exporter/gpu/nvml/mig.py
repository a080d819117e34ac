"""The instances that a GPU is split into (MIG)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from exporter.gpu.backend import CardError, Reading, Tier
from exporter.gpu.contract import MIG_CHANGED
from exporter.gpu.nvml import errors, library, memory
from exporter.gpu.nvml.gpm import SHARES, Window
from exporter.gpu.nvml.probes import Call, Found, either

_GONE = (errors.INVALID_ARGUMENT, errors.NOT_FOUND)
"""What is said of an instance that is not there, or no longer."""

T = TypeVar("T")


class Instance(NamedTuple):
    """A compute instance, the GPU instance that it is part of, and what it is: ``1g.18gb``."""

    gpu_instance: int
    compute_instance: int
    profile: str
    uuid: str


class Mig:
    """The instances of one GPU.

    Handles of instances are worth nothing once the GPU was split anew, and not all drivers give new
    ones before NVML is opened anew. So a change is a ``CardError`` until another worker has taken over,
    which knows nothing of how it was.
    """

    def __init__(self) -> None:
        self._split: tuple[int, frozenset[Instance]] | None = None
        self._handles: dict[int, Any] = {}
        self._windows: dict[int, Window] = {}

    def forget(self) -> None:
        """Keep no handle; how the GPU was split is kept, to see that it changed."""
        self._handles = {}
        for window in self._windows.values():
            window.forget()

    def walk(self, handle: Any) -> list[Reading]:
        """What each instance is. Raises ``CardError`` if they are others than they were."""
        mode = _mode(handle)
        found = dict(_instances(handle)) if mode else {}
        split = mode, frozenset(found)
        self._split = self._split or split
        if self._split != split:
            raise CardError(MIG_CHANGED)
        self._handles = {each.gpu_instance: mig for each, mig in found.items()}
        return [_info(each) for each in found]

    def memory(self, _handle: Any) -> list[Found]:
        """Memory is that of a GPU instance: its compute instances share it."""
        return self._each(lambda _, mig: memory.read(mig))

    def activity(self, handle: Any) -> list[Found]:
        """Means since the last reading, of what GPUs since Hopper count."""
        return self._each(lambda number, _: self._window(number)(handle))

    def _each(self, read: Callable[[int, Any], Iterable[Found]]) -> list[Found]:
        return [
            _of(number, found)
            for number, mig in self._handles.items()
            for found in _unless_gone(partial(read, number, mig))
        ]

    def _window(self, number: int) -> Window:
        if number not in self._windows:
            self._windows[number] = Window("GpmMigSampleGet", partial(_take, number), SHARES)
        return self._windows[number]


_mode = either(lambda handle: library.ask(handle, "GetMigMode")[0], lambda _: 0)
_name = either(lambda mig: str(library.ask(mig, "GetName")), lambda _: "")


def _unless_gone(ask: Callable[[], Iterable[T]]) -> list[T]:
    try:
        return list(ask())
    except library.Error as error:
        if error.value in _GONE:
            return []
        raise


def _instances(handle: Any) -> Iterator[tuple[Instance, Any]]:
    """Instances and their handles. There may be holes in the numbers."""
    for number in range(library.ask(handle, "GetMaxMigDeviceCount")):
        yield from _unless_gone(partial(_instance, handle, number))


def _instance(handle: Any, number: int) -> Iterator[tuple[Instance, Any]]:
    """NVML's name of it ends in the profile: NVIDIA H200 MIG 1g.18gb."""
    mig = library.ask(handle, "GetMigDeviceHandleByIndex", number)
    instance = Instance(
        gpu_instance=library.ask(mig, "GetGpuInstanceId"),
        compute_instance=library.ask(mig, "GetComputeInstanceId"),
        profile=_name(mig).partition(" MIG ")[2],
        uuid=str(library.ask(mig, "GetUUID")),
    )
    yield instance, mig


def _info(instance: Instance) -> Reading:
    labels = {
        "gpu_instance_id": str(instance.gpu_instance),
        "compute_instance_id": str(instance.compute_instance),
        "profile": instance.profile,
        "mig_uuid": instance.uuid,
    }
    return Reading("gpu_mig_info", 1, labels)


def _of(number: int, found: Found) -> Found:
    """The same of an instance."""
    if not isinstance(found, Reading):
        return found
    labels = {"gpu_instance_id": str(number), **found.labels}
    return Reading(found.metric.replace("gpu_", "gpu_mig_", 1), found.value, labels)


def _take(number: int, handle: Any, sample: Any) -> None:
    library.call("GpmMigSampleGet", handle, number, sample)


def calls() -> tuple[Call, ...]:
    """They remember the instances. First comes what tells whether they are still the same."""
    mig = Mig()
    return (
        Call("GetMigDeviceHandleByIndex", Tier.SLOW, mig.walk, forget=mig.forget),
        Call("GetMemoryInfo(mig)", Tier.FAST, mig.memory),
        Call("GpmMigSampleGet", Tier.FAST, mig.activity),
    )
