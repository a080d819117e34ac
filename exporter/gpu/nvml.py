"""The GPUs of this machine, through NVIDIA's library NVML."""

from __future__ import annotations

import ctypes
import time
from contextlib import suppress
from typing import Any

from exporter.gpu import library
from exporter.gpu.backend import BackendError, DriverError, Event, ReadError, Settings
from exporter.gpu.card import Found, NvmlCard, down

_XID = 8
"""NVML's number of the event of a critical Xid error."""


class Nvml:
    """All GPUs that NVML lists when it is opened, and their critical Xid errors."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cards: list[NvmlCard] = []
        self._driver = ""
        self._set: Any = None
        self._uuids: dict[int, str] = {}

    def open(self) -> tuple[int, dict[str, str]]:
        try:
            library.call("Init")
            self._driver = str(library.call("SystemGetDriverVersion"))
            cuda = library.call("SystemGetCudaDriverVersion")
            nvml = str(library.call("SystemGetNVMLVersion"))
            count = int(library.call("DeviceGetCount"))
        except DriverError as problem:
            raise BackendError(problem.code) from problem
        versions = {"cuda_version": f"{cuda // 1000}.{cuda % 1000 // 10}", "nvml_version": nvml}
        return count, {"driver_version": self._driver, **versions}

    def card(self, number: int) -> NvmlCard:
        try:
            handle = library.call("DeviceGetHandleByIndex", number)
            card = NvmlCard(handle, self._register, self._settings, self._driver)
        except DriverError as problem:
            raise down(problem) from problem
        self._cards.append(card)
        return card

    def _register(self, handle: Any, uuid: str) -> list[Found]:
        """Listen for this GPU's errors from now on; earlier ones are lost."""
        self._set = self._set or library.call("EventSetCreate")
        library.call("DeviceRegisterEvents", handle, _XID, self._set)
        self._uuids[_address(handle)] = uuid
        return []

    def events(self, seconds: float) -> list[Event]:
        """The next error, its UUID empty if unknown; nothing if none came in time. Raises ``DriverError``."""
        if self._set is None:
            time.sleep(seconds)
            return []
        try:
            found = library.call("EventSetWait_v2", self._set, int(seconds * 1000))
        except ReadError as problem:
            if problem.code == "timeout":
                return []
            raise
        # Of a GPU that fell off the bus only the handle is left: it cannot be asked for its UUID.
        uuid = self._uuids.get(_address(found.device), "")
        return [Event(uuid, int(found.eventData), time.time())]

    def close(self) -> None:
        for card in self._cards:
            card.forget()
        with suppress(DriverError):  # the driver may be gone
            if self._set is not None:
                library.call("EventSetFree", self._set)
        with suppress(DriverError):
            library.call("Shutdown")


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
