"""Critical Xid errors, as the driver tells them."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import pynvml

from exporter.gpu.nvml import errors


class XidEvents:
    """Listens for the errors of all GPUs that were registered."""

    def __init__(self) -> None:
        self._set: Any = None
        self._uuids: dict[int, str] = {}

    def register(self, handle: Any, uuid: str) -> None:
        """Hear of this GPU's errors from now on; earlier ones are lost.

        Raises:
            NVMLError: the GPU or its driver tells none.
        """
        if self._set is None:
            self._set = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
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
            found = pynvml.nvmlEventSetWait_v2(self._set, int(seconds * 1000))
        except pynvml.NVMLError_Timeout:
            return None
        except pynvml.NVMLError as error:
            raise errors.meaning(error) from error
        # Of a GPU that fell off the bus only the handle is left: it cannot be asked for its UUID.
        return self._uuids.get(_address(found.device), ""), int(found.eventData)

    def close(self) -> None:
        """Listen no more."""
        if self._set is not None:
            pynvml.nvmlEventSetFree(self._set)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
