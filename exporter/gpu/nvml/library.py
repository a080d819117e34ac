"""NVIDIA's library, function by function. Only this module knows that wheels of ``nvidia-ml-py`` differ.

A wheel names the functions of its day, and a driver has those of its own. What either of them lacks is
an error as any other: ``FUNCTION_NOT_FOUND``. Numbers that wheels also name stand in this package
themselves, since a wheel's may be another driver's.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import pynvml

from exporter.gpu.nvml.errors import FUNCTION_NOT_FOUND

Error = pynvml.NVMLError
"""What every call raises; ``value`` is NVML's code."""

_MISFIT = getattr(pynvml, "NVMLLibraryMismatchError", ())
"""Newer wheels have a kind of its own for a driver that lacks a function of several versions."""


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
    """Have ``nvmlDevice<name>`` write its answer into one of the arguments, whatever the wheel knows.

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
