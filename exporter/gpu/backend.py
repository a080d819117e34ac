"""What a worker reads from: one small protocol, so that simulated GPUs go the same way as real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, Protocol


class Report(NamedTuple):
    """What was last read from a GPU.

    ``at`` in seconds of the steady clock; ``missing`` reasons by call; ``errors`` counts by call and
    code; ``seconds`` that each tier took.
    """

    at: float
    reason: str
    readings: tuple[Reading, ...] = ()
    missing: Mapping[str, str] = {}
    errors: Mapping[tuple[str, str], int] = {}
    seconds: Mapping[str, float] = {}


BACKENDS = {"nvml": "exporter.gpu.nvml.backend:Nvml", "demo": "exporter.gpu.demo:Demo"}
"""Where to find each; only the worker loads one."""

PROFILES = {"h200": 8, "a100": 8, "a100-mig": 2, "rtx4080": 2}
"""What the simulated GPUs can be, and how many of them there are then."""

COMPATS = ("none", "dcgm")
"""Whose names may be served beside our own."""

OK = "ok"
NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Extras(NamedTuple):
    """What is served only on request, and what the simulated GPUs are.

    ``processes``: most of a GPU that are named; ``proc``: where the host's ``/proc`` is; ``sick``: the
    number of the simulated GPU that fails; ``compat``: whose names are served beside our own.
    """

    processes: int = 0
    proc: str = "/proc"
    serial: bool = False
    links: bool = False
    pcie: bool = False
    profile: str = "h200"
    sick: int | None = None
    compat: str = "none"


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


class Missing(NamedTuple):
    """A part of a call that this GPU does not have, and why."""

    call: str
    reason: str


class Failure(NamedTuple):
    """A part of a call that failed this time, and why."""

    call: str
    code: str


class Quantity(NamedTuple):
    """A driver call and what becomes of its answer.

    ``read`` raises ``ReadError`` or one of its kinds.
    """

    call: str
    tier: Tier
    read: Callable[[], Iterable[Reading | Missing | Failure]]


class Event(NamedTuple):
    """A critical Xid error: of which GPU, and when, in seconds since 1970."""

    uuid: str
    xid: int
    at: float


class ReadError(Exception):
    """Raised when a call fails this time; ``code`` is a word for the reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class UnsupportedError(ReadError):
    """Raised when the GPU or its driver does not have the call."""


class CardError(ReadError):
    """Raised when nothing can be read from this GPU; ``code`` becomes the reason of ``gpu_up``."""


class BackendError(ReadError):
    """Raised when only a new worker helps; ``code`` becomes the reason of ``gpu_exporter_nvml_up``."""


class Card(Protocol):
    """One GPU. ``uuid`` is empty if it could not be asked for it."""

    number: int
    uuid: str
    quantities: Sequence[Quantity]

    def find(self) -> None:
        """Look again for a GPU that was down. Raises ``CardError`` if it still is."""


class Backend(Protocol):
    """A source of GPUs. After ``BackendError`` it is not used again."""

    def open(self) -> None:
        """Connect to the driver. Raises ``BackendError``."""

    def system(self) -> list[Reading]:
        """What holds for all GPUs."""

    def cards(self) -> Sequence[Card]:
        """Every GPU that the driver lists, working or not."""

    def events(self, seconds: float) -> list[Event]:
        """Wait at most that long for critical errors. Raises ``ReadError``."""

    def close(self) -> None:
        """Release the devices."""
