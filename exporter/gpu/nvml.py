"""The GPUs of this machine, through NVIDIA's library NVML."""

from __future__ import annotations

import ctypes
import time
from contextlib import suppress
from typing import Any

from exporter.gpu import library
from exporter.gpu.backend import BackendError, Event, Extras, ReadError, Reading
from exporter.gpu.card import NvmlCard, down

_XID = 8
"""NVML's number of the event of a critical Xid error."""


class Nvml:
    """All GPUs that NVML lists when it is opened, and their critical Xid errors."""

    _loaded: Any = None
    """The library as it was when this process loaded it: it is never loaded again."""

    def __init__(self, extras: Extras) -> None:
        self._extras = extras
        self._cards: list[NvmlCard] = []
        self._driver = ""
        self._set: Any = None
        self._uuids: dict[int, str] = {}

    def open(self) -> int:
        try:
            library.call("Init")
            self._driver = str(library.call("SystemGetDriverVersion"))
            return int(library.call("DeviceGetCount"))
        except ReadError as problem:
            raise BackendError(problem.code) from problem
        finally:
            Nvml._loaded = Nvml._loaded or library.path()

    def card(self, number: int) -> NvmlCard:
        try:
            handle = library.call("DeviceGetHandleByIndex", number)
            card = NvmlCard(handle, self._register, self._extras, self._driver)
        except ReadError as problem:
            raise down(problem) from problem
        self._cards.append(card)
        return card

    def system(self) -> Reading:
        try:
            cuda = library.call("SystemGetCudaDriverVersion")
            nvml = str(library.call("SystemGetNVMLVersion"))
        except ReadError as problem:
            raise BackendError(problem.code) from problem
        versions = {"cuda_version": f"{cuda // 1000}.{cuda % 1000 // 10}", "nvml_version": nvml}
        return Reading("gpu_driver_info", 1, {"driver_version": self._driver, **versions})

    def _register(self, handle: Any, uuid: str) -> None:
        """Listen for this GPU's errors from now on; earlier ones are lost."""
        self._set = self._set or library.call("EventSetCreate")
        library.call("DeviceRegisterEvents", handle, _XID, self._set)
        self._uuids[_address(handle)] = uuid

    def events(self, seconds: float) -> list[Event]:
        """The next error, its UUID empty if unknown; nothing if none came in time. Raises ``ReadError``."""
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
        with suppress(ReadError):  # the driver may be gone
            if self._set is not None:
                library.call("EventSetFree", self._set)
        with suppress(ReadError):
            library.call("Shutdown")

    def outdated(self) -> bool:
        return Nvml._loaded is not None and Nvml._loaded != library.path()


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
