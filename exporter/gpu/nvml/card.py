"""One GPU in NVML, and all calls for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from exporter.gpu.backend import BackendError, CardError, Extras, Quantity, ReadError, Reading, Tier
from exporter.gpu.nvml import board, library, links, mig, processes, thermal, windows
from exporter.gpu.nvml.fields import Fields
from exporter.gpu.nvml.probes import Call, Found, Read


def calls(handle: Any, extras: Extras, driver: thermal.Version) -> Iterator[Call]:
    """All calls for one GPU; some remember what they saw last. Raises ``library.Error``."""
    yield from mig.calls()
    yield board.identity(serial=extras.serial)
    yield from (*board.CLOCKS, *thermal.CALLS, *board.POWER, *board.ACTIVITY)
    yield from windows.calls()
    yield from (*board.MEMORY, *board.MODES, *board.FABRIC)
    yield from links.Links().calls(each=extras.links)
    yield from links.PCIE
    yield from processes.calls(extras, driver)
    # since Hopper PCIe's throughput comes with the other means over the interval, without a wait
    if extras.pcie and board.architecture(handle) < board.HOPPER:
        yield links.Throughput().call()
    # what has a number is read in one go for each tier; links that are counted one by one have their own
    traffic, error_fields = ((), ()) if extras.links else (links.traffic(), links.error_fields())
    fast = Fields((*board.FAST_FIELDS, *thermal.fields(driver), *traffic))
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
        driver: thermal.Version,
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
            problem = library.problem(error.value)
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
    problem = library.problem(error.value)
    return problem if isinstance(problem, (CardError, BackendError)) else CardError(problem.code)
