"""NVIDIA's library: how a GPU is asked, function by function, and what its error codes mean.

Only this module knows that wheels of ``nvidia-ml-py`` differ. A wheel names the functions of its day, and a
driver has those of its own. What either of them lacks is an error as any other: ``FUNCTION_NOT_FOUND``;
many values have a second call for it. Numbers that wheels also name are defined in this package, since a
wheel may be for another driver.

Other values have a number instead of a call of their own: many are read at once. ``ctypes`` serves what
``pynvml`` lacks: ``fill`` calls functions that a wheel does not know, and reads numbered values in one call
with memory that is used again.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import isfinite
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import pynvml

from exporter.gpu import backend
from exporter.gpu.backend import (
    BackendError,
    CardError,
    Failure,
    Missing,
    ReadError,
    Reading,
    Tier,
    UnsupportedError,
)

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


def error_of(code: int) -> ReadError:
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
    """Call ``nvmlDevice<name>``, which fills an argument, even if the wheel lacks it. Raises ``Error``."""
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


def path() -> tuple[str, tuple[int, int]] | None:
    """Where the loaded library is, and which file is there now; ``None`` while none is loaded."""
    with open("/proc/self/maps") as maps:  # noqa: PTH123  (pathlib weighs 1 MB)
        for line in maps:
            if "libnvidia-ml.so" in line:
                name = line.split(maxsplit=5)[5].removesuffix("\n").removesuffix(" (deleted)")
                with suppress(OSError):
                    found = os.stat(name)  # noqa: PTH116
                    return name, (found.st_dev, found.st_ino)
                return name, (0, 0)
    return None


Found = Reading | Missing | Failure
Read = Callable[[Any], Iterable[Found]]
"""Takes NVML's handle; raises ``library.Error`` where the driver has no answer."""

Probe = Callable[[Any], float]
"""Takes NVML's handle, returns one number; raises as ``Read`` does, and ``ReadError``."""

_NO_NUMBERS = frozenset((0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))
"""What drivers write where they have no value."""

_T = TypeVar("_T")


class Call(NamedTuple):
    """A call for one GPU, without ``nvmlDevice``; ``forget`` what it remembers of the last reading."""

    name: str
    tier: Tier
    read: Read
    forget: Callable[[], None] = lambda: None


def number(value: float | None, most: float = float("inf")) -> float:
    """A number of the driver's, at most ``most``. Raises ReadError."""
    if value is None or value in _NO_NUMBERS or not 0 <= value <= most:
        raise ReadError("garbage")
    return value


def either(first: Callable[[Any], _T], second: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """The first where this GPU and driver have it, else the second; checked at each call."""

    def ask(handle: Any) -> _T:
        try:
            return first(handle)
        except Error as error:
            if error.value not in NOT_HERE:
                raise
        return second(handle)

    return ask


def parts(handle: Any, call: str, probes: Iterable[tuple[str, Mapping[str, str], Probe]]) -> list[Found]:
    """A reading for each metric, its labels and its probe, as far as the GPU has it. Raises Error."""
    found: list[Found] = []
    lacking: list[Exception] = []
    for metric, labels, probe in probes:
        name = f"{call}({','.join(labels.values())})"
        try:
            found.append(Reading(metric, probe(handle), labels))
        except ReadError as problem:
            found.append(Failure(name, problem.code))
        except Error as error:
            if error.value not in NOT_HERE:
                raise
            found.append(Missing(name, error_name(error.value)))
            lacking.append(error)
    if lacking and len(lacking) == len(found):
        raise lacking[0]
    return found


ALL = 0xFFFFFFFF
"""The scope of a value that is the sum over all links."""

NARROW = frozenset((1, 5, 6))
"""Types of so few bits that a count of bytes or nanoseconds wraps within seconds."""

_RECORD = Struct("=IIqqIi8s")
"""``nvmlFieldValue_t``: number, scope, time, latency in microseconds, value type, error code, value."""

TYPES = tuple(map(Struct, "dILQqiH"))
"""How the value is encoded, by its type. The rest of its bytes holds anything."""

_NONE = (None, 0xFFFFFFFF, 2**64 - 1, 2**64 - 1, None, None, 0xFFFF)
"""What an unsigned type holds where the driver has no value."""


class Answer(NamedTuple):
    """``code`` is NVML's; ``value`` is ``None`` where there is no number; ``latency`` in seconds."""

    code: int
    kind: int
    value: float | None
    latency: float


class Batch:
    """Numbers of values, each of a scope, that are read together. For one thread: memory is used again."""

    def __init__(self, ids: Iterable[tuple[int, int]]) -> None:
        # An entry that the driver leaves untouched stays an error, and no value of the last time.
        entries = [_RECORD.pack(number, scope, 0, 0, 0, UNKNOWN, b"") for number, scope in ids]
        self._count = len(entries)
        self._asked = b"".join(entries)
        self._buffer = ctypes.create_string_buffer(len(self._asked))

    def ask(self, handle: Any) -> list[Answer]:
        """An answer for each number, in order. Raises ``library.Error`` if there is none at all."""
        self._buffer.raw = self._asked
        fill(handle, "GetFieldValues", self._count, self._buffer)
        return [
            Answer(code, kind, None if code else decode(kind, raw), max(0, micros) / 1e6)
            for _, _, _, micros, kind, code, raw in _RECORD.iter_unpack(self._buffer.raw)
        ]


def decode(kind: int, raw: bytes) -> float | None:
    """What the 8 bytes of a value hold, by its type; ``None`` if that is not a number."""
    if kind >= len(TYPES):
        return None
    (found,) = TYPES[kind].unpack_from(raw)
    return None if found == _NONE[kind] or not isfinite(found) else float(found)
