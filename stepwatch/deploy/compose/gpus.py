"""How Docker can give containers the NVIDIA GPUs of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepwatch.deploy.compose import engine

KIND = "nvidia.com/gpu"
"""What NVIDIA calls its devices in CDI."""

_DEVICE = Path("/dev/nvidiactl")


def files(*, processes: bool, device: Path = _DEVICE) -> tuple[str, ...]:
    """The files that belong beside compose.yaml; none without a GPU, since a reservation would be fatal.

    NVIDIA's runtime comes first: a CDI specification is of the driver that was there when it was made, and
    after an upgrade the whole stack would not start.

    Args:
        processes: Whether processes on the GPUs are to be named.
        device: What is there if a driver is.
    """
    info = engine.info() if device.exists() else {}
    if "nvidia" in (info.get("Runtimes") or {}):
        access = ["compose.gpu.yaml"]
    else:
        access = ["compose.gpu.cdi.yaml"] if any(KIND in name for name in _cdi(info)) else []
    return (*access, *(["compose.processes.yaml"] if access and processes else []))


def _cdi(info: Mapping[str, Any]) -> Iterator[str]:
    """What speaks of CDI devices: since Docker 28.3 their names, before that the files that define them."""
    if info.get("DiscoveredDevices"):
        yield from (device["Name"] for device in info["DiscoveredDevices"])
        return
    for folder in info.get("CDISpecDirs") or []:
        for file in sorted(Path(folder).glob("*.[jy]*")):
            with suppress(OSError):  # what we may not read, Docker may: without it we only do not know
                yield file.read_text(encoding="utf-8", errors="replace")
