"""What a GPU is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from exporter.gpu.backend import Reading, Tier
from exporter.gpu.nvml import library
from exporter.gpu.nvml.probes import Call, either

HOPPER = 9
_ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    HOPPER: "hopper",
    10: "blackwell",
    13: "rubin",
}
_UNKNOWN = 0xFFFFFFFF


def bus_id(handle: Any) -> str:
    """Where the GPU sits: what it is found again by, since its number may change."""
    found = library.ask(handle, "GetPciInfo").busId
    return found.decode() if isinstance(found, bytes) else str(found)


def architecture(handle: Any) -> int:
    """NVML's number of it, 0 if that is not known. Raises ``library.Error``."""
    found = int(either(partial(library.ask, name="GetArchitecture"), lambda _: 0)(handle))
    return 0 if found == _UNKNOWN else found


def call(*, serial: bool) -> Call:
    """What tells a GPU from others; with its serial number only if that is wanted."""
    return Call("GetName", Tier.STATIC, partial(_identity, serial))


def _identity(serial: bool, handle: Any) -> Iterator[Reading]:  # noqa: FBT001  (for ``partial``)
    number = architecture(handle)
    labels = {
        "name": library.ask(handle, "GetName"),
        "pci_bus_id": bus_id(handle),
        "architecture": _ARCHITECTURES.get(number, str(number or "")),
        "compute_capability": _or_empty(_compute_capability, handle),
        "vbios_version": _or_empty(partial(library.ask, name="GetVbiosVersion"), handle),
    }
    if serial:
        labels["serial"] = _or_empty(partial(library.ask, name="GetSerial"), handle)
    yield Reading("gpu_info", 1, labels)


def _or_empty(ask: Callable[[Any], str], handle: Any) -> str:
    """A label that some GPUs lack."""
    return str(either(ask, lambda _: "")(handle))


def _compute_capability(handle: Any) -> str:
    return "{}.{}".format(*library.ask(handle, "GetCudaComputeCapability"))
