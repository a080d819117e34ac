"""What a GPU is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml.ways import Call, either

_ARCHITECTURES = {
    value: name.removeprefix("NVML_DEVICE_ARCH_").lower()
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_DEVICE_ARCH_")
}


def _identity(handle: Any) -> Iterator[Reading]:
    labels = {
        "name": pynvml.nvmlDeviceGetName(handle),
        "pci_bus_id": bus_id(handle),
        "architecture": _told(_architecture, handle),
        "compute_capability": _told(_compute_capability, handle),
        "vbios_version": _told(pynvml.nvmlDeviceGetVbiosVersion, handle),
    }
    yield Reading("gpu_info", 1, labels)


def bus_id(handle: Any) -> str:
    """Where the GPU sits: what it is found again by, since its number may change."""
    found = pynvml.nvmlDeviceGetPciInfo(handle).busId
    return found.decode() if isinstance(found, bytes) else str(found)


def _told(ask: Callable[[Any], str], handle: Any) -> str:
    """A label that some GPUs lack."""
    return str(either(ask, lambda _: "")(handle))


def _architecture(handle: Any) -> str:
    number = pynvml.nvmlDeviceGetArchitecture(handle)
    return str(_ARCHITECTURES.get(number, number))


def _compute_capability(handle: Any) -> str:
    return "{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle))


CALLS = (Call("GetName", Tier.STATIC, _identity),)
