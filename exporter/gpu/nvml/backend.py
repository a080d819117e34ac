"""The GPUs of this machine, through NVIDIA's library NVML."""

from __future__ import annotations

import time
from collections.abc import Sequence

from exporter.gpu.backend import BackendError, Card, Event, Extras, Reading
from exporter.gpu.nvml import errors, library, throttling
from exporter.gpu.nvml.card import LostCard, NvmlCard, down
from exporter.gpu.nvml.opening import Closable, open_all
from exporter.gpu.nvml.xids import XidEvents


class Nvml:
    """All GPUs that NVML lists when it is opened."""

    def __init__(self, extras: Extras) -> None:
        self._extras = extras
        self._cards: list[Closable] = []
        self._driver = ""
        self._xids = XidEvents()

    def open(self) -> None:
        try:
            library.call("Init")
            self._driver = str(library.call("SystemGetDriverVersion"))
            self._cards = open_all(library.call("DeviceGetCount"), self._card)
        except library.Error as error:
            raise BackendError(errors.name(error.value)) from error

    def _card(self, number: int) -> Closable:
        try:
            handle = library.call("DeviceGetHandleByIndex", number)
            return NvmlCard(number, handle, self._xids, self._extras, throttling.version(self._driver))
        except library.Error as error:
            problem = down(error)
            if isinstance(problem, BackendError):
                raise problem from error
            return LostCard(number, problem.code)

    def system(self) -> list[Reading]:
        try:
            cuda = library.call("SystemGetCudaDriverVersion")
            labels = {
                "driver_version": self._driver,
                "cuda_version": f"{cuda // 1000}.{cuda % 1000 // 10}",
                "nvml_version": str(library.call("SystemGetNVMLVersion")),
            }
        except library.Error as error:
            raise BackendError(errors.name(error.value)) from error
        return [Reading("gpu_driver_info", 1, labels)]

    def cards(self) -> Sequence[Card]:
        return self._cards

    def events(self, seconds: float) -> list[Event]:
        found = self._xids.wait(seconds)
        return [] if found is None else [Event(*found, time.time())]

    def close(self) -> None:
        """Let go of the devices, unless the driver still holds a thread."""
        self._xids.close()
        closed = [card.close() for card in self._cards]
        if all(closed):
            library.call("Shutdown")
