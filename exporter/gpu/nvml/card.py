"""One GPU as NVML knows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pynvml

from exporter.gpu.backend import BackendError, CardError, Extras, Missing, Quantity, ReadError, Reading, Tier
from exporter.gpu.nvml import errors
from exporter.gpu.nvml.calls import calls
from exporter.gpu.nvml.identity import bus_id
from exporter.gpu.nvml.xids import XidEvents


class NvmlCard:
    """A GPU that NVML gave a handle for."""

    def __init__(self, number: int, handle: Any, xids: XidEvents, extras: Extras) -> None:
        self.number = number
        self.uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        self._calls = calls(extras)
        self.quantities: Sequence[Quantity] = [
            Quantity("RegisterEvents", Tier.STATIC, partial(self._read, self._listen)),
            *(Quantity(call.name, call.tier, partial(self._read, call.read)) for call in self._calls),
        ]
        self._handle = handle
        self._bus_id = bus_id(handle)
        self._xids = xids

    def find(self) -> None:
        """Look again for the GPU. Its number is no help: a lost GPU changes those of the others."""
        self.forget()
        self._look_up()

    def _look_up(self) -> None:
        try:
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(self._bus_id.encode())
        except pynvml.NVMLError as error:
            raise down(error) from error

    def forget(self) -> None:
        """Let go of what the calls keep: it is of a GPU that was lost, or is no longer read."""
        for call in self._calls:
            call.forget()

    def _listen(self, handle: Any) -> list[Reading | Missing]:
        self._xids.register(handle, self.uuid)
        return []

    def _read(self, read: Callable[[Any], Iterable[Reading | Missing]]) -> list[Reading | Missing]:
        try:
            return list(read(self._handle))
        except pynvml.NVMLError as error:
            raise self._meaning(error) from error
        except ValueError as error:  # a name that is no text, say
            raise ReadError("garbage") from error

    def _meaning(self, error: pynvml.NVMLError) -> ReadError:
        """An unknown error may be this call's, or a lost GPU's."""
        if error.value == errors.UNKNOWN:
            try:
                self._look_up()
            except ReadError as problem:
                return problem
        return errors.meaning(error)


class LostCard:
    """A GPU that NVML counts and gives no handle for. Only opening NVML anew can bring it back."""

    quantities: Sequence[Quantity] = ()

    def __init__(self, number: int, reason: str) -> None:
        self.number = number
        self.uuid = ""
        self._reason = reason

    def find(self) -> None:
        raise CardError(self._reason)

    def forget(self) -> None:
        """Nothing was read of it."""


def down(error: pynvml.NVMLError) -> ReadError:
    """What it means that a GPU cannot be found. For a lost one some drivers say "unknown"."""
    meaning = errors.meaning(error)
    if error.value == errors.UNKNOWN:
        return CardError("lost")
    return meaning if isinstance(meaning, (CardError, BackendError)) else CardError(meaning.code)
