"""What GPUs are read from: one small protocol, so that simulated GPUs go the same way as real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from exporter.options import Served, number, one_of, positive, setting, string, switch
from exporter.options import port as port_number

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


@dataclass(frozen=True)
class Settings(Served):
    """The settings of the GPU exporter, as flags and file have them; durations in seconds."""

    port: int = setting(port_number, 9411, "port to serve on")
    backend: str = setting(
        one_of("backend", ("nvml", "demo")), "nvml", "where the GPUs are, demo: simulated ones"
    )
    interval: float = setting(positive, 1.0, "seconds between two readings")
    expected: int = setting(number, 0, "expected number of GPUs; 0 for the most that were seen")
    retry: float = setting(
        positive, 2.0, "seconds until a missing driver or GPU is tried again, doubled each time"
    )
    restart_after: int = setting(
        number, 0, "seconds without a readable GPU until it exits to be restarted; 0 for never"
    )
    processes: int = setting(number, 0, "maximum number of processes named per GPU; 0 for none")
    proc: str = setting(string, "/proc", "the host's /proc, with the names of the processes")
    serial: bool = setting(
        switch, default=False, text="serve the serial numbers of the boards: true or false"
    )
    links: bool = setting(switch, default=False, text="count bytes and errors of each NVLink: true or false")
    pcie: bool = setting(
        switch, default=False, text="sample PCIe before Hopper, 40 ms each time: true or false"
    )
    profile: str = setting(one_of("profile", PROFILES), "h200", f"simulated GPUs: {', '.join(PROFILES)}")
    sick: int | None = setting(number, None, "the number of the simulated GPU that fails")


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
