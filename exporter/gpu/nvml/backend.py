"""The GPUs of this machine, through NVIDIA's library NVML."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Protocol

from exporter.gpu.backend import BackendError, Card, CardError, Event, Extras, Quantity, Reading
from exporter.gpu.nvml import errors, library, throttling
from exporter.gpu.nvml.card import LostCard, NvmlCard, down
from exporter.gpu.nvml.xids import XidEvents

PATIENCE_SECONDS = 2.0
"""What opens in this time is there from the first page on."""


class Closable(Card, Protocol):
    """A GPU that may hold something of the driver's."""

    def close(self) -> bool:
        """Release it. False while the driver holds a thread of it."""


class Opening:
    """A GPU that is being opened, and that GPU once it is."""

    def __init__(self, number: int, opened: Callable[[int], Closable]) -> None:
        self.number = number
        self.uuid = ""
        self.quantities: Sequence[Quantity] = ()
        self._opened = opened
        self._problem: BackendError | None = None
        self._card: Closable | None = None
        self._thread = Thread(target=self._open, name=f"opening {number}", daemon=True)
        self._thread.start()

    def _open(self) -> None:
        try:
            self._card = self._opened(self.number)
        except BackendError as problem:
            self._problem = problem

    def card(self, seconds: float) -> Closable:
        """The GPU itself if it is open within that time, else what may still become it.

        Raises:
            BackendError: only a new worker helps.
        """
        self._thread.join(seconds)
        if self._problem is not None:
            raise self._problem
        if self._card is None and not self._thread.is_alive():
            raise BackendError("crashed")
        return self._card or self

    def find(self) -> None:
        card = self.card(0)
        if card is self:
            raise CardError("timeout")
        card.find()
        self.uuid, self.quantities = card.uuid, card.quantities

    def close(self) -> bool:
        return self._card is not None and self._card.close()


def open_all(count: int, opened: Callable[[int], Closable]) -> list[Closable]:
    """Every GPU of that many; ``opened`` opens one. Raises ``BackendError`` as that does."""
    until = time.monotonic() + PATIENCE_SECONDS
    openings = [Opening(number, opened) for number in range(count)]
    return [opening.card(max(0.0, until - time.monotonic())) for opening in openings]


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
        """Release the devices, unless the driver still holds a thread."""
        self._xids.close()
        closed = [card.close() for card in self._cards]
        if all(closed):
            library.call("Shutdown")
