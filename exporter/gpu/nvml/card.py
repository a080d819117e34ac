"""One GPU as NVML knows it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from exporter.gpu.backend import CardError, Extras, Quantity, ReadError, Tier
from exporter.gpu.nvml import errors, library
from exporter.gpu.nvml.calls import calls
from exporter.gpu.nvml.identity import bus_id
from exporter.gpu.nvml.probes import Found, Read
from exporter.gpu.nvml.throttling import Version
from exporter.gpu.nvml.xids import XidEvents


class NvmlCard:
    """A GPU that NVML gave a handle for."""

    def __init__(self, number: int, handle: Any, xids: XidEvents, extras: Extras, driver: Version) -> None:
        self.number = number
        self.uuid = str(library.ask(handle, "GetUUID"))
        self._calls = calls(handle, extras, driver)
        self.quantities: Sequence[Quantity] = [
            Quantity("RegisterEvents", Tier.STATIC, partial(self._read, self._listen)),
            *(Quantity(call.name, call.tier, partial(self._read, call.read)) for call in self._calls),
        ]
        self._handle = handle
        self._bus_id = bus_id(handle)
        self._xids = xids

    def find(self) -> None:
        """Look again for the GPU. Its number is no help: a lost GPU changes those of the others."""
        self._forget()
        self._look_up()

    def _look_up(self) -> None:
        try:
            self._handle = library.call("DeviceGetHandleByPciBusId", self._bus_id.encode())
        except library.Error as error:
            raise down(error) from error

    def close(self) -> bool:
        """End what goes on beside the readings. False while the driver holds a thread of it."""
        self._forget()
        closed = [call.close() for call in self._calls]
        return all(closed)

    def _forget(self) -> None:
        """What the calls keep is of a GPU that was lost, or is no longer read."""
        for call in self._calls:
            call.forget()

    def _listen(self, handle: Any) -> list[Found]:
        self._xids.register(handle, self.uuid)
        return []

    def _read(self, read: Read) -> list[Found]:
        try:
            return list(read(self._handle))
        except library.Error as error:
            raise self._meaning(error) from error
        except ValueError as error:  # a name that is not a string, say
            raise ReadError("garbage") from error

    def _meaning(self, error: library.Error) -> ReadError:
        """An unknown error may be this call's, or a lost GPU's."""
        if error.value == errors.UNKNOWN:
            try:
                self._look_up()
            except ReadError as problem:
                return problem
        return errors.meaning(error.value)


class LostCard:
    """A GPU that NVML counts and gives no handle for. Only opening NVML anew can bring it back."""

    quantities: Sequence[Quantity] = ()

    def __init__(self, number: int, reason: str) -> None:
        self.number = number
        self.uuid = ""
        self._reason = reason

    def find(self) -> None:
        raise CardError(self._reason)

    def close(self) -> bool:
        """There is nothing to end."""
        return True


def down(error: library.Error) -> ReadError:
    """What it means that a GPU cannot be found."""
    meaning = errors.meaning(error.value)
    return meaning if errors.is_fatal(meaning) else CardError(meaning.code)
