"""The PCIe link of a GPU, and what goes over it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event, Semaphore, Thread
from typing import Any

from exporter.gpu.backend import ReadError, Reading, Tier
from exporter.gpu.nvml import library
from exporter.gpu.nvml.probes import Call, asked, one

_KB = 1000
"""What NVML counts in; whether its KB are of 1000 bytes or of 1024 it does not say."""
_DIRECTIONS = {
    "gpu_pcie_transmit_bytes_per_second": asked("GetPcieThroughput", 0),
    "gpu_pcie_receive_bytes_per_second": asked("GetPcieThroughput", 1),
}
_END_SECONDS = 0.4


def _link(call: str, tier: Tier, metric: str, kind: str) -> Call:
    return one(call, tier, metric, {"kind": kind})


LINK = (
    _link("GetMaxPcieLinkGeneration", Tier.STATIC, "gpu_pcie_link_generation", "max"),
    _link("GetMaxPcieLinkWidth", Tier.STATIC, "gpu_pcie_link_width", "max"),
    _link("GetCurrPcieLinkGeneration", Tier.SLOW, "gpu_pcie_link_generation", "current"),
    _link("GetCurrPcieLinkWidth", Tier.SLOW, "gpu_pcie_link_width", "current"),
)


class Throughput:
    """Measures in a thread of its own: NVML takes 20 ms for each direction.

    A reading gives what was measured since the one before, and has it measured again.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._found: Callable[[], list[Reading]] = list
        self._wanted = Semaphore(0)
        self._idle = Event()
        self._idle.set()
        self._thread: Thread | None = None

    def call(self) -> Call:
        """The reading."""
        return Call("GetPcieThroughput", Tier.FAST, self._read, self._close)

    def _read(self, handle: Any) -> list[Reading]:
        if not self._idle.is_set():
            raise ReadError("timeout")
        found, self._found = self._found, list
        # A GPU that was away comes back with another handle; what was measured before is old.
        readings = found() if handle is self._handle else []
        self._measure(handle)
        return readings

    def _measure(self, handle: Any) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="pcie", daemon=True)
            self._thread.start()
        self._handle = handle
        self._idle.clear()
        self._wanted.release()

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            self._found = _measured(self._handle)
            self._idle.set()

    def _close(self) -> bool:
        return self._idle.wait(_END_SECONDS)


def _measured(handle: Any) -> Callable[[], list[Reading]]:
    """Gives the readings, or raises what measuring them raised."""
    try:
        readings = [Reading(metric, ask(handle) * _KB) for metric, ask in _DIRECTIONS.items()]
    except (library.Error, ReadError) as error:
        return partial(_again, error)
    return lambda: readings


def _again(error: Exception) -> list[Reading]:
    raise error
