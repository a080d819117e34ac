"""The GPUs of this machine, through NVIDIA's library NVML: how each is opened, and all calls for it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Thread
from typing import Any, Protocol

from exporter.gpu.backend import (
    BackendError,
    Card,
    CardError,
    Event,
    Extras,
    Quantity,
    ReadError,
    Reading,
    Tier,
)
from exporter.gpu.nvml import board, library, links, mig, processes, windows
from exporter.gpu.nvml.library import Call, Fields, Found, Read


def calls(handle: Any, extras: Extras, driver: board.DriverVersion) -> Iterator[Call]:
    """All calls for one GPU; some remember what they saw last. Raises ``library.Error``."""
    yield from mig.calls()
    yield board.identity(serial=extras.serial)
    yield from (*board.CLOCKS, *board.THERMAL, *board.POWER, *board.ACTIVITY)
    yield from windows.calls()
    yield Call("GetMemoryInfo", Tier.FAST, board.memory)
    yield from (*board.MODES, *board.FABRIC)
    yield from links.Links().calls(each=extras.links)
    yield from links.PCIE
    yield from processes.calls(extras, driver)
    # since Hopper PCIe's throughput comes with the other means over the interval, without a wait
    if extras.pcie and board.architecture(handle) < board.HOPPER:
        yield links.Throughput().call()
    # what has a number is read in one go for each tier; links that are counted one by one have their own
    traffic, error_fields = ((), ()) if extras.links else (links.traffic(), links.error_fields())
    fast = Fields((*board.FAST_FIELDS, *board.throttling_fields(driver), *traffic))
    slow = Fields((*board.SLOW_FIELDS, *error_fields))

    def read_fast(handle: Any) -> list[Found]:
        found = fast.read(handle)
        return [*found, Reading("gpu_exporter_driver_latency_seconds", fast.latency)]

    yield Call("GetFieldValues", Tier.FAST, read_fast)
    yield Call("GetFieldValues(slow)", Tier.SLOW, slow.read)


class NvmlCard:
    """A GPU that NVML gave a handle for. ``register`` has its Xid errors reported, by handle and UUID."""

    def __init__(
        self,
        number: int,
        handle: Any,
        register: Callable[[Any, str], None],
        extras: Extras,
        driver: board.DriverVersion,
    ) -> None:
        self.number = number
        self.uuid = str(library.ask(handle, "GetUUID"))
        self._calls = tuple(calls(handle, extras, driver))
        self.quantities: Sequence[Quantity] = [
            Quantity("RegisterEvents", Tier.STATIC, partial(self._read, self._listen)),
            *(Quantity(call.name, call.tier, partial(self._read, call.read)) for call in self._calls),
        ]
        self._handle = handle
        self._bus_id = board.bus_id(handle)
        self._register = register

    def find(self) -> None:
        """Look up the GPU again, by PCI bus id: a lost GPU changes the indices of the others."""
        self._forget()
        self._look_up()

    def close(self) -> bool:
        """End what goes on beside the readings. False while the driver holds a thread of it."""
        self._forget()
        closed = [call.close() for call in self._calls]
        return all(closed)

    def _forget(self) -> None:
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


class LostCard:
    """A GPU that NVML counts but gives no handle for. Only reopening NVML can bring it back."""

    uuid = ""
    quantities: Sequence[Quantity] = ()

    def __init__(self, number: int, reason: str) -> None:
        self.number = number
        self._reason = reason

    def find(self) -> None:
        raise CardError(self._reason)

    def close(self) -> bool:
        """There is nothing to end."""
        return True


def down(error: library.Error) -> ReadError:
    """What it means that a GPU cannot be found."""
    problem = library.error_of(error.value)
    return problem if isinstance(problem, (CardError, BackendError)) else CardError(problem.code)


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
        """The GPU itself if it is open within that time, else what may still become it."""
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
            version = board.driver_version(self._driver)
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
