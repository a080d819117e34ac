"""NVIDIA's library: how a GPU is asked, function by function, and what its error codes mean.

Only this module knows that wheels of ``nvidia-ml-py`` differ. A wheel names the functions of its day, and a
driver has those of its own: what either lacks is an error as any other. ``ctypes`` serves what ``pynvml``
lacks: functions that a wheel does not know, and numbered values in one call with memory that is used again.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterable
from contextlib import suppress
from math import inf, isfinite
from struct import Struct
from typing import Any

import pynvml

from exporter.gpu.backend import BackendError, CardError, ReadError, UnsupportedError

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
_ERRORS: dict[int, tuple[type[ReadError], str]] = {
    int(code): (kind, word)
    for kind, text in _CODES.items()
    for code, word in zip(text.split()[::2], text.split()[1::2], strict=True)
}


def error_of(code: int) -> ReadError:
    """What the error code of one reading means for the reading, the GPU, or the whole connection."""
    kind, word = _ERRORS.get(code, (ReadError, f"error_{code}"))
    return kind(word)


def call(name: str, *arguments: Any) -> Any:
    """What the function ``nvml<name>`` answers, as the wheel gives it. Raises ``ReadError``."""
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
    """Call ``nvmlDevice<name>``, which fills an argument; the wheel may lack it. Raises ``ReadError``."""
    code = getattr(_loaded(), f"nvmlDevice{name}", lambda *_: _ABSENT)(handle, *arguments)
    if code:
        raise error_of(code)


def words(handle: Any, name: str, version: int) -> Any:
    """The 32-bit words of a structure whose version ends in its bytes. Raises ``ReadError``."""
    structure = (ctypes.c_int * ((version & 0xFFFF) // 4))(version)
    fill(handle, name, structure)
    return structure


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
        """A value or a ``ReadError`` for each, and the seconds of the slowest under ``("latency",)``.

        Raises ``ReadError`` if there is no answer at all.
        """
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
