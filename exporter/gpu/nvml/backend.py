"""The GPUs of this machine, through NVIDIA's library NVML: how each is opened, and all calls for it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from exporter.gpu.backend import BackendError, CardError, Event, Extras, Quantity, ReadError, Reading, Tier
from exporter.gpu.nvml import library, mig, processes, values, windows
from exporter.gpu.nvml.library import Call, Found, Read, number
from exporter.gpu.nvml.values import DriverVersion

_PCIE = {"gpu_pcie_transmit_bytes_per_second": 0, "gpu_pcie_receive_bytes_per_second": 1}
_KB = 1000
"""What NVML counts in; whether its KB are of 1000 bytes or of 1024 it does not say."""


def _throughput(handle: Any) -> list[Found]:
    """What PCIe carries: NVML takes 20 ms for each direction."""
    return [
        Reading(metric, number(library.ask(handle, "GetPcieThroughput", direction)) * _KB)
        for metric, direction in _PCIE.items()
    ]


def _calls(handle: Any, extras: Extras, driver: DriverVersion) -> Iterator[Call]:
    """All calls for one GPU; some remember what they saw last. Raises ``library.Error``."""
    yield from mig.calls()
    yield from windows.calls()
    yield from values.calls(extras, driver)
    yield from processes.calls(extras, driver)
    # since Hopper PCIe's throughput comes with the other means over the interval, without a wait
    if extras.pcie and values.architecture(handle) < values.HOPPER:
        yield Call("GetPcieThroughput", Tier.FAST, _throughput)


class NvmlCard:
    """A GPU that NVML gave a handle for. ``register`` has its Xid errors reported, by handle and UUID."""

    def __init__(
        self, handle: Any, register: Callable[[Any, str], None], extras: Extras, driver: DriverVersion
    ) -> None:
        self.uuid = str(library.ask(handle, "GetUUID"))
        self._calls = tuple(_calls(handle, extras, driver))
        self.quantities: Sequence[Quantity] = [
            Quantity("RegisterEvents", Tier.STATIC, partial(self._read, self._listen)),
            *(Quantity(call.name, call.tier, partial(self._read, call.read)) for call in self._calls),
        ]
        self._handle = handle
        self._bus_id = values.bus_id(handle)
        self._register = register

    def find(self) -> None:
        """Look up the GPU again, by PCI bus id: a lost GPU changes the indices of the others."""
        self.forget()
        self._look_up()

    def forget(self) -> None:
        """Forget the state of a GPU that was lost, or is no longer read."""
        for call in self._calls:
            call.forget()

    def _look_up(self) -> None:
        try:
            self._handle = library.call("DeviceGetHandleByPciBusId", self._bus_id.encode())
        except library.Error as error:
            raise down(error) from error

    def _listen(self, handle: Any) -> list[Found]:
        self._register(handle, self.uuid)
        return []

    def _read(self, read: Read) -> list[Found]:
        try:
            return list(read(self._handle))
        except library.Error as error:
            problem = library.error_of(error.value)
            if error.value == library.UNKNOWN:  # this call's, or a lost GPU's
                try:
                    self._look_up()
                except ReadError as lost:
                    problem = lost
            raise problem from error
        except ValueError as error:  # a name that is not a string, say
            raise ReadError("garbage") from error


def down(error: library.Error) -> ReadError:
    """What it means that a GPU cannot be found."""
    problem = library.error_of(error.value)
    return problem if isinstance(problem, (CardError, BackendError)) else CardError(problem.code)


_CRITICAL = 8
"""NVML's number of the event of a critical Xid error."""


class XidEvents:
    """Listens for the critical Xid errors of all GPUs that were registered."""

    def __init__(self) -> None:
        self._set: Any = None
        self._uuids: dict[int, str] = {}

    def register(self, handle: Any, uuid: str) -> None:
        """Listen for this GPU's errors from now on; earlier ones are lost. Raises Error."""
        if self._set is None:
            self._set = library.call("EventSetCreate")
        library.ask(handle, "RegisterEvents", _CRITICAL, self._set)
        self._uuids[_address(handle)] = uuid

    def wait(self, seconds: float) -> list[Event]:
        """The next error, its UUID empty if unknown; nothing if none came in time. Raises ReadError."""
        if self._set is None:
            time.sleep(seconds)
            return []
        try:
            found = library.call("EventSetWait_v2", self._set, int(seconds * 1000))
        except library.Error as error:
            if error.value == library.TIMEOUT:
                return []
            raise library.error_of(error.value) from error
        # Of a GPU that fell off the bus only the handle is left: it cannot be asked for its UUID.
        uuid = self._uuids.get(_address(found.device), "")
        return [Event(uuid, int(found.eventData), time.time())]

    def close(self) -> None:
        """Listen no more."""
        if self._set is not None:
            library.call("EventSetFree", self._set)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


class Nvml:
    """All GPUs that NVML lists when it is opened."""

    _loaded: Any = None
    """The library as it was when this process loaded it: it is never loaded again."""

    def __init__(self, extras: Extras) -> None:
        self._extras = extras
        self._cards: list[NvmlCard] = []
        self._driver = ""
        self._xids = XidEvents()

    def open(self) -> int:
        try:
            library.call("Init")
            self._driver = str(library.call("SystemGetDriverVersion"))
            return int(library.call("DeviceGetCount"))
        except library.Error as error:
            raise BackendError(library.error_name(error.value)) from error
        finally:
            Nvml._loaded = Nvml._loaded or library.path()

    def card(self, number: int) -> NvmlCard:
        try:
            handle = library.call("DeviceGetHandleByIndex", number)
            version = values.driver_version(self._driver)
            card = NvmlCard(handle, self._xids.register, self._extras, version)
        except library.Error as error:
            raise down(error) from error
        except ValueError as error:  # a name that is not a string, say
            raise CardError("garbage") from error
        self._cards.append(card)
        return card

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

    def events(self, seconds: float) -> list[Event]:
        return self._xids.wait(seconds)

    def close(self) -> None:
        for card in self._cards:
            card.forget()
        for close in (self._xids.close, partial(library.call, "Shutdown")):
            with suppress(library.Error):  # the driver may be gone
                close()

    def outdated(self) -> bool:
        return Nvml._loaded is not None and Nvml._loaded != library.path()
