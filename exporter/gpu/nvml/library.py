"""NVIDIA's library, function by function, and what its error codes mean.

Only this module knows that wheels of ``nvidia-ml-py`` differ. A wheel names the functions of its day, and a
driver has those of its own. What either of them lacks is an error as any other: ``FUNCTION_NOT_FOUND``.
Numbers that wheels also name are defined in this package, since a wheel may be for another driver.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

from exporter.gpu import backend
from exporter.gpu.backend import BackendError, CardError, ReadError, UnsupportedError

Error = pynvml.NVMLError
"""What every call raises; ``value`` is NVML's code."""

_MISFIT = getattr(pynvml, "NVMLLibraryMismatchError", ())
"""Newer wheels have a kind of its own for a driver that lacks a function of several versions."""

OK = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
TIMEOUT = 10
FUNCTION_NOT_FOUND = 13
UNKNOWN = 999

_NAMES = {
    1: "uninitialized",
    INVALID_ARGUMENT: "invalid_argument",
    NOT_SUPPORTED: "not_supported",
    4: "no_permission",
    NOT_FOUND: "not_found",
    INSUFFICIENT_SIZE: "insufficient_size",
    8: "insufficient_power",
    9: "driver_not_loaded",
    TIMEOUT: "timeout",
    11: "irq_issue",
    12: "library_not_found",
    FUNCTION_NOT_FOUND: "function_not_found",
    14: "corrupted_inforom",
    15: "lost",
    16: "reset_required",
    17: "operating_system",
    18: "version_mismatch",
    19: "in_use",
    20: "memory",
    21: "no_data",
    23: "insufficient_resources",
    25: "argument_version_mismatch",
    26: "deprecated",
    27: "not_ready",
    28: "lost",
    29: "invalid_state",
    UNKNOWN: backend.UNKNOWN,
}
"""NVML's own words, but for 15 (GPU is lost), 28 (GPU not found) and 18 (library and driver differ)."""

NOT_HERE = frozenset((INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, 25, 26))
"""This GPU or driver does not know what it was asked."""

_KINDS: dict[int, type[ReadError]] = {
    **dict.fromkeys((*NOT_HERE, 4), UnsupportedError),
    **dict.fromkeys((15, 16, 28), CardError),
    **dict.fromkeys((1, 9, 12, 18), BackendError),
}


def error_name(code: int) -> str:
    """A word for an error code."""
    return _NAMES.get(code, f"error_{code}")


def problem(code: int) -> ReadError:
    """What the error code of one reading means for the reading, the GPU, or the whole connection."""
    return _KINDS.get(code, ReadError)(error_name(code))


@contextmanager
def ignored(codes: Container[int]) -> Iterator[None]:
    """Pass over errors with these codes."""
    try:
        yield
    except Error as error:
        if error.value not in codes:
            raise


def call(name: str, *arguments: Any) -> Any:
    """What the function ``nvml<name>`` answers, as the wheel gives it. Raises ``Error``."""
    function = getattr(pynvml, f"nvml{name}", None)
    if function is None:
        raise Error(FUNCTION_NOT_FOUND)
    try:
        return function(*arguments)
    except _MISFIT as error:
        raise Error(FUNCTION_NOT_FOUND) from error


def ask(handle: Any, name: str, *arguments: Any) -> Any:
    """What ``nvmlDevice<name>`` answers about a GPU, as the wheel gives it. Raises ``Error``."""
    return call(f"Device{name}", handle, *arguments)


def fill(handle: Any, name: str, *arguments: Any) -> None:
    """Call ``nvmlDevice<name>``, which writes its answer into an argument, even if the wheel lacks it.

    ``arguments`` are those of NVML's own header, as ``ctypes`` takes them. Raises ``Error``.
    """
    try:
        function = getattr(_loaded(), f"nvmlDevice{name}")
    except AttributeError:
        raise Error(FUNCTION_NOT_FOUND) from None
    if code := function(handle, *arguments):
        raise Error(code)


@functools.cache
def _loaded() -> ctypes.CDLL:
    """The library that the wheel has opened: the system loads none twice."""
    return ctypes.CDLL("libnvidia-ml.so.1")
