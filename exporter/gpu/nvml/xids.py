"""Critical Xid errors, as the driver tells them."""

from __future__ import annotations

import ctypes
import time
from typing import Any

from exporter.gpu.nvml import errors, library

_CRITICAL = 8
"""NVML's number of the event."""


class XidEvents:
    """Listens for the errors of all GPUs that were registered."""

    def __init__(self) -> None:
        self._set: Any = None
        self._uuids: dict[int, str] = {}

    def register(self, handle: Any, uuid: str) -> None:
        """Hear of this GPU's errors from now on; earlier ones are lost.

        Raises:
            library.Error: the GPU or its driver tells none.
        """
        if self._set is None:
            self._set = library.call("EventSetCreate")
        library.ask(handle, "RegisterEvents", _CRITICAL, self._set)
        self._uuids[_address(handle)] = uuid

    def wait(self, seconds: float) -> tuple[str, int] | None:
        """The UUID (empty if unknown) and number of the next error; ``None`` if none came in time.

        Raises:
            ReadError: the driver does not say.
        """
        if self._set is None:
            time.sleep(seconds)
            return None
        try:
            found = library.call("EventSetWait_v2", self._set, int(seconds * 1000))
        except library.Error as error:
            if error.value == errors.TIMEOUT:
                return None
            raise errors.meaning(error.value) from error
        # Of a GPU that fell off the bus only the handle is left: it cannot be asked for its UUID.
        return self._uuids.get(_address(found.device), ""), int(found.eventData)

    def close(self) -> None:
        """Listen no more."""
        if self._set is not None:
            library.call("EventSetFree", self._set)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
