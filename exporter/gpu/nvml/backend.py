"""The GPUs of this machine, through NVIDIA's library NVML."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any, Protocol

from exporter.gpu.backend import BackendError, Card, CardError, Event, Extras, Quantity, Reading
from exporter.gpu.nvml import library, thermal
from exporter.gpu.nvml.card import LostCard, NvmlCard, down

PATIENCE_SECONDS = 2.0
"""What opens in this time is there from the first page on."""

_CRITICAL = 8
"""NVML's number of the event of a critical Xid error."""


class XidEvents:
    """Listens for the critical Xid errors of all GPUs that were registered."""

    def __init__(self) -> None:
        self._set: Any = None
        self._uuids: dict[int, str] = {}

    def register(self, handle: Any, uuid: str) -> None:
        """Listen for this GPU's errors from now on; earlier ones are lost.

        Raises:
            library.Error: the GPU or its driver reports none.
        """
        if self._set is None:
            self._set = library.call("EventSetCreate")
        library.ask(handle, "RegisterEvents", _CRITICAL, self._set)
        self._uuids[_address(handle)] = uuid

    def wait(self, seconds: float) -> list[Event]:
        """The next error, its UUID empty if unknown; nothing if none came in time.

        Raises:
            ReadError: the driver does not answer.
        """
        if self._set is None:
            time.sleep(seconds)
            return []
        try:
            found = library.call("EventSetWait_v2", self._set, int(seconds * 1000))
        except library.Error as error:
            if error.value == library.TIMEOUT:
                return []
            raise library.problem(error.value) from error
        # Of a GPU that fell off the bus only the handle is left: it cannot be asked for its UUID.
        uuid = self._uuids.get(_address(found.device), "")
        return [Event(uuid, int(found.eventData), time.time())]

    def close(self) -> None:
        """Listen no more."""
        if self._set is not None:
            library.call("EventSetFree", self._set)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


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
            raise BackendError(library.error_name(error.value)) from error

    def _card(self, number: int) -> Closable:
        try:
            handle = library.call("DeviceGetHandleByIndex", number)
            version = thermal.version(self._driver)
            return NvmlCard(number, handle, self._xids.register, self._extras, version)
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
            raise BackendError(library.error_name(error.value)) from error
        return [Reading("gpu_driver_info", 1, labels)]

    def cards(self) -> Sequence[Card]:
        return self._cards

    def events(self, seconds: float) -> list[Event]:
        return self._xids.wait(seconds)

    def close(self) -> None:
        """Release the devices, unless the driver still holds a thread."""
        self._xids.close()
        closed = [card.close() for card in self._cards]
        if all(closed):
            library.call("Shutdown")
