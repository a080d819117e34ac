"""NVIDIA's library: how a GPU is asked, function by function, and what its error codes mean.

Only this module knows that wheels of ``nvidia-ml-py`` differ. A wheel names the functions of its day, and a
driver has those of its own: what either lacks is an error as any other. ``ctypes`` serves what ``pynvml``
lacks: functions that a wheel does not know, and numbered values in one call with memory that is used again.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf, isfinite
from operator import attrgetter
from struct import Struct
from typing import Any

import pynvml

from exporter.gpu.backend import BackendError, CardError, DriverError, ReadError, UnsupportedError

_MISFIT = getattr(pynvml, "NVMLLibraryMismatchError", ())
"""Newer wheels have a kind of its own for a driver that lacks a function of several versions."""

_UNKNOWN, _ABSENT = 999, 13
_CODES = {
    UnsupportedError: "2 invalid_argument 3 not_supported 4 no_permission 13 function_not_found "
    "25 argument_version_mismatch 26 deprecated",
    CardError: "15 lost 16 reset_required 28 lost",
    BackendError: "1 uninitialized 9 driver_not_loaded 12 library_not_found 18 version_mismatch",
    ReadError: "0 ok 6 not_found 7 insufficient_size 8 insufficient_power 10 timeout 11 irq_issue "
    "14 corrupted_inforom 17 operating_system 19 in_use 20 memory 21 no_data 23 insufficient_resources "
    "27 not_ready 29 invalid_state 999 unknown",
}
"""NVML's own words, but for 15 (GPU is lost), 28 (GPU not found) and 18 (library and driver differ)."""
_ERRORS: dict[int, tuple[type[DriverError], str]] = {
    int(code): (kind, word)
    for kind, text in _CODES.items()
    for code, word in zip(text.split()[::2], text.split()[1::2], strict=True)
}


def error_of(code: int) -> DriverError:
    """What the error code of one reading means for the reading, the GPU, or the whole connection."""
    kind, word = _ERRORS.get(code, (ReadError, f"error_{code}"))
    return kind(word)


def call(name: str, *arguments: Any) -> Any:
    """What the function ``nvml<name>`` answers, as the wheel gives it. Raises ``DriverError``."""
    try:
        return getattr(pynvml, f"nvml{name}", _absent)(*arguments)
    except _MISFIT as error:
        raise error_of(_ABSENT) from error
    except pynvml.NVMLError as error:
        raise error_of(error.value) from error
    except ValueError as error:  # a name that is not a string, say
        raise ReadError("garbage") from error


def _absent(*_: Any) -> None:
    raise error_of(_ABSENT)


def fill(handle: Any, name: str, *arguments: Any) -> None:
    """Call ``nvmlDevice<name>``, which fills an argument; the wheel may lack it. Raises ``DriverError``."""
    code = getattr(_loaded(), f"nvmlDevice{name}", lambda *_: _ABSENT)(handle, *arguments)
    if code:
        raise error_of(code)


def words(handle: Any, name: str, version: int) -> Any:
    """The 32-bit words of a structure whose version ends in its bytes. Raises ``DriverError``."""
    structure = (ctypes.c_int * ((version & 0xFFFF) // 4))(version)
    fill(handle, name, structure)
    return structure


@functools.cache
def _loaded() -> ctypes.CDLL:
    """The library that the wheel has opened: the system loads none twice."""
    return ctypes.CDLL("libnvidia-ml.so.1")


_NO_NUMBERS = frozenset((0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))
"""What drivers write where they have no value."""


def number(value: float | None, most: float = inf, least: float = 0) -> float:
    """A number of the driver's within bounds. Raises ``ReadError``."""
    if value is None or value in _NO_NUMBERS or not least <= value <= most:
        raise ReadError("garbage")
    return value


_RECORD = Struct("=IIqqIi8s")
"""``nvmlFieldValue_t``: number, scope, time, latency in microseconds, value type, error code, value."""

_TYPES = tuple(map(Struct, "dILQqiH"))
"""How the value is encoded, by its type. The rest of its bytes holds anything."""

_NONE = (None, 0xFFFFFFFF, 2**64 - 1, 2**64 - 1, None, None, 0xFFFF)
"""What an unsigned type holds where the driver has no value."""

_NARROW = frozenset((1, 5, 6))
"""Types of so few bits that a count of bytes or nanoseconds wraps within seconds."""


class Batch:
    """Numbered values that are read together, each ``("field", number, scope)``.

    Those in ``wide`` must not be counted in few bits. For one thread: memory is used again.
    """

    def __init__(self, keys: Iterable[tuple[Any, ...]], wide: Iterable[tuple[Any, ...]] = ()) -> None:
        self._keys, self._wide = list(keys), frozenset(wide)
        # An entry that the driver leaves untouched stays an error, and no value of the last time.
        self._asked = b"".join(
            _RECORD.pack(number, scope, 0, 0, 0, _UNKNOWN, b"") for _, number, scope in self._keys
        )
        self._buffer = ctypes.create_string_buffer(len(self._asked))

    def ask(self, handle: Any) -> dict[tuple[Any, ...], Any]:
        """A value or a ``DriverError`` for each, and the seconds of the slowest under ``("latency",)``."""
        self._buffer.raw = self._asked
        fill(handle, "GetFieldValues", len(self._keys), self._buffer)
        found: dict[tuple[Any, ...], Any] = {}
        slowest = 0
        for key, (_, _, _, micros, kind, code, raw) in zip(
            self._keys, _RECORD.iter_unpack(self._buffer.raw), strict=True
        ):
            slowest = max(slowest, micros)
            if code:
                found[key] = error_of(code)
            elif kind >= len(_TYPES):
                found[key] = UnsupportedError("garbage")
            elif kind in _NARROW and key in self._wide:
                found[key] = UnsupportedError("wraps")
            else:
                value = decode(kind, raw)
                found[key] = ReadError("garbage") if value is None else value
        return {**found, ("latency",): slowest / 1e6}


def decode(kind: int, raw: bytes) -> float | None:
    """What the 8 bytes of a value hold, by its type; ``None`` if that is not a number."""
    if kind >= len(_TYPES):
        return None
    (found,) = _TYPES[kind].unpack_from(raw)
    return None if found == _NONE[kind] or not isfinite(found) else float(found)


_LEAST_SECONDS = 0.1
"""Between two samples; the driver gives no values for less."""


class Window:
    """Means of a GPU's own counters (GPM) over the time since the last reading.

    ``sample`` has a GPU, by its handle, fill a sample in the driver's library; ``keys`` are
    ``("gpm", number)``.
    """

    def __init__(self, sample: Callable[[Any, Any], Any], keys: Iterable[tuple[Any, ...]]) -> None:
        self._sample, self._keys = sample, list(keys)
        self._samples: list[Any] = []
        self._sampled, self._found = -inf, dict[tuple[Any, ...], Any]()

    def forget(self) -> None:
        """Reset, and free the samples in the library."""
        while self._samples:
            with suppress(DriverError):  # the library may be closed, or the GPU lost
                call("GpmSampleFree", self._samples.pop())
        self._sampled = -inf

    def ask(self, handle: Any) -> dict[tuple[Any, ...], Any]:
        """A value or a ``DriverError`` for each; none the first time, the last ones where it is too early."""
        if time.monotonic() - self._sampled >= _LEAST_SECONDS:
            try:
                self._found = self._means(handle)
            except DriverError:
                self.forget()
                raise
        return self._found

    def _means(self, handle: Any) -> dict[tuple[Any, ...], Any]:
        """Take a sample, in place of the last but one, and compare it with the last."""
        if not self._samples and not call("GpmQueryDeviceSupport", handle).isSupportedDevice:
            raise UnsupportedError("not_supported")
        if len(self._samples) < 2:
            self._samples.append(call("GpmSampleAlloc"))
        else:
            self._samples.reverse()
        self._sample(handle, self._samples[-1])
        self._sampled = time.monotonic()
        if len(self._samples) < 2:
            return {}
        asked = pynvml.c_nvmlGpmMetricsGet_t(1, len(self._keys), *self._samples)
        for answer, (_, number) in zip(asked.metrics, self._keys, strict=False):
            answer.metricId = number
        call("GpmMetricsGet", asked)
        found = {
            key: error_of(answer.nvmlReturn) if answer.nvmlReturn else answer.value
            for key, answer in zip(self._keys, asked.metrics, strict=False)
        }
        if all(isinstance(each, DriverError) for each in found.values()):
            raise found[self._keys[0]]
        return found


class Mark:
    """Up to which of the driver's samples a GPU was read. They bear microseconds of the time of day."""

    def __init__(self) -> None:
        self._last = 0

    def since(self) -> int:
        """After which time to ask for samples; 0 where the clock was set back: new ones would seem old."""
        if self._last > (time.time() + 1) * 1e6:
            self._last = 0
        return self._last

    def newer(self, samples: Iterable[Any]) -> list[Any]:
        """Those since the last reading, in order; none at the first."""
        since = self._last
        found = sorted((each for each in samples if each.timeStamp > since), key=attrgetter("timeStamp"))
        self._last = found[-1].timeStamp if found else since or 1
        return found if since else []


def answer(handle: Any, name: str, *arguments: int) -> Any:
    """What the table asks for, or the ``ReadError`` of this call. Raises those of the GPU or of NVML."""
    try:
        if name in _OURS:
            return _OURS[name](handle, *arguments)
        return call(f"Device{name}", handle, *arguments)
    except ReadError as problem:
        return problem


def _temperature(handle: Any) -> float:
    try:
        return number(words(handle, "GetTemperatureV", 0x100000C)[2])
    except UnsupportedError:
        return number(call("DeviceGetTemperature", handle, 0))  # goes with CUDA 14


def _margin(handle: Any) -> int:
    return int(words(handle, "GetMarginTemperature", 0x1000008)[1])


def _threshold(handle: Any, field: int) -> float:
    """Since Ada, from its distance to where the margin is 0; right to one degree: both are read in turn."""
    zero = _temperature(handle) + _margin(handle)
    distance = Batch([("field", field, 0)]).ask(handle)["field", field, 0]
    if isinstance(distance, DriverError):
        raise UnsupportedError(distance.code)
    return float(zero - distance)


def _clock_events(handle: Any) -> list[bool]:
    try:
        bits = call("DeviceGetCurrentClocksEventReasons", handle)
    except UnsupportedError:
        bits = call("DeviceGetCurrentClocksThrottleReasons", handle)
    return [bool(bits >> place & 1) for place in range(9)]


_OURS: dict[str, Callable[..., Any]] = {
    "temperature": _temperature,
    "margin": _margin,
    "old_margin": lambda gpu: number(call("DeviceGetTemperatureThreshold", gpu, 1)) - _temperature(gpu),
    "threshold": _threshold,
    "fabric": lambda gpu: words(gpu, "GetGpuFabricInfoV", 0x2000024)[7],
    "old_fabric": lambda gpu: words(gpu, "GetGpuFabricInfo", 28)[6],
    "clock_events": _clock_events,
}
"""What the table asks for that is not a function of the wheel's."""
