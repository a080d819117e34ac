"""What GPUs are read from: one small protocol, so that simulated GPUs go the same way as real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

CRITICAL_XIDS = (46, 48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 140, 143)
"""Xid errors whose counters stand at 0 from the start: ``increase`` cannot see the first event else."""

RELEASE_SECONDS = 60
LONGEST_RELEASE_SECONDS = 3600
"""How long the devices are released, by default and at most: no GPU is watched meanwhile."""

OK = "ok"
RELEASED = "released"
UNKNOWN = "unknown"
"""NVML's word for unnamed errors; for a single GPU it means that the GPU is lost."""
MIG_CHANGED = "mig_changed"
"""Why a GPU whose MIG layout changed is down until NVML is reopened."""

NVML_REASONS = {
    OK: "NVML answers.",
    "starting": "NVML is being opened.",
    "library_not_found": "libnvidia-ml.so.1 was not found. Fix: install NVIDIA's driver, or give this "
    "container access to the GPUs.",
    "driver_not_loaded": "NVIDIA's driver is not loaded. Fix: modprobe nvidia, or a reboot.",
    "version_mismatch": "The driver was upgraded while the old one is loaded. Fix: reload it or reboot; "
    "a container must be recreated.",
    "no_permission": "This user may not use the NVIDIA devices. Fix: let it read and write /dev/nvidia*.",
    "uninitialized": "NVML lost its connection to the driver.",
    "timeout": "The driver does not answer.",
    RELEASED: "The devices are released on request.",
}
"""What ``gpu_exporter_nvml_up`` gives as reason, and what it means. Other NVML errors go by their name."""

PROFILES = {"h200": 8, "a100": 8, "a100-mig": 2, "rtx4080": 2}
"""What the simulated GPUs can be, and how many of them there are then."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Settings(NamedTuple):
    """The flags. All times in seconds.

    ``retry``: until the next try to open NVML, doubled each time; ``restart_after``: without a readable GPU
    until the exporter should end, 0 for never. ``expected``: how many GPUs, 0 for the most that were seen.
    """

    backend: str = "nvml"
    interval: float = 1.0
    expected: int = 0
    retry: float = 2.0
    restart_after: int = 0
    processes: int = 0
    proc: str = "/proc"
    serial: bool = False
    links: bool = False
    pcie: bool = False
    profile: str = "h200"
    sick: int | None = None


class Tier(str, Enum):
    """How often something is read: once, each interval, or each 15th."""

    STATIC = "static"
    FAST = "fast"
    SLOW = "slow"


class Reading(NamedTuple):
    """One value in the metric's unit; ``labels`` are those beside the GPU's own."""

    metric: str
    value: float
    labels: Mapping[str, str] = NO_LABELS


class Problem(NamedTuple):
    """A part of a call that this GPU lacks, or one that failed this time, and why."""

    call: str
    code: str
    lacking: bool


class Call(NamedTuple):
    """A driver call; ``read`` takes the handle of a GPU and raises ``DriverError``."""

    name: str
    tier: Tier
    read: Callable[[Any], Iterable[Reading | Problem]]


class Event(NamedTuple):
    """A critical Xid error: of which GPU, and when, in seconds since 1970."""

    uuid: str
    xid: int
    at: float


class DriverError(Exception):
    """What a driver call may raise; ``code`` is a word for the reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class ReadError(DriverError):
    """Raised when a call fails this time."""


class UnsupportedError(ReadError):
    """Raised when the GPU or its driver does not have the call."""


class CardError(DriverError):
    """Raised when nothing can be read from this GPU; ``code`` becomes the reason of ``gpu_up``."""


class BackendError(DriverError):
    """Raised when only reopening NVML helps; ``code`` becomes the reason of ``gpu_exporter_nvml_up``."""


class Card(Protocol):
    """One GPU."""

    uuid: str
    calls: list[Call]

    def read(self, call: Call) -> Iterable[Reading | Problem]:
        """Make one of its calls. Raises ``DriverError``."""

    def find(self) -> None:
        """Look again for a GPU that was down. Raises ``CardError`` if it still is."""


class Backend(Protocol):
    """A source of GPUs, opened once."""

    def open(self) -> tuple[int, dict[str, str]]:
        """Connect. Returns how many GPUs there are, and the driver's versions. Raises ``BackendError``."""

    def card(self, number: int) -> Card:
        """Open a GPU; may be tried again. Raises ``CardError`` or ``BackendError``."""

    def events(self, seconds: float) -> Iterable[Event]:
        """Wait at most that long for critical errors. Raises ``DriverError``."""

    def close(self) -> None:
        """Release the devices."""
