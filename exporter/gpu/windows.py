"""What is known of the time between two readings: a GPU's own counters (GPM), and the driver's samples."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from exporter.gpu import library
from exporter.gpu.backend import ReadError, UnsupportedError

LEAST_SECONDS = 0.1
"""Between two samples; the driver gives no values for less."""
CLOCK_SECONDS = 1
"""By how much a sample may seem to come from the future."""
_ROOM = 98
"""Answers that NVML's first structure had room for: no driver may rely on more."""

T = TypeVar("T")


class _Answer(ctypes.Structure):
    """``nvmlGpmMetric_t``; the texts at its end are not used."""

    _fields_ = (
        ("number", ctypes.c_uint),
        ("code", ctypes.c_uint),
        ("value", ctypes.c_double),
        ("texts", ctypes.c_void_p * 3),
    )


class _Question(ctypes.Structure):
    """``nvmlGpmMetricsGet_t``. The driver fills as many answers as it is asked for."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("older", ctypes.c_void_p),
        ("newer", ctypes.c_void_p),
        ("answers", _Answer * _ROOM),
    )


class Window:
    """Means over the time since the last reading, whose sample stays in the driver's library.

    ``sample`` has a GPU, by its handle, fill a sample; ``keys`` are ``("gpm", number)``.
    """

    def __init__(self, sample: Callable[[Any, Any], Any], keys: Iterable[tuple[Any, ...]]) -> None:
        self._sample, self._keys = sample, list(keys)
        self._question = _Question(version=1, count=len(self._keys))
        for answer, (_, number) in zip(self._question.answers, self._keys, strict=False):
            answer.number = number
        self._samples: list[Any] = []
        self._sampled, self._found = -math.inf, dict[tuple[Any, ...], Any]()

    def forget(self) -> None:
        """Reset, and free the samples in the library."""
        while self._samples:
            with suppress(ReadError):  # the library may be closed, or the GPU lost
                library.call("GpmSampleFree", self._samples.pop())
        self._sampled = -math.inf

    def ask(self, handle: Any) -> dict[tuple[Any, ...], Any]:
        """A value or a ``ReadError`` for each; none the first time, the last ones where it is too early.

        Raises ``ReadError`` where the GPU has none at all.
        """
        if time.monotonic() - self._sampled >= LEAST_SECONDS:
            try:
                self._found = self._compared(handle)
            except ReadError:
                self.forget()
                raise
        return self._found

    def _compared(self, handle: Any) -> dict[tuple[Any, ...], Any]:
        """Take a sample, in place of the last but one, and compare it with the last."""
        if not self._samples and not library.call("GpmQueryDeviceSupport", handle).isSupportedDevice:
            raise UnsupportedError("not_supported")
        if len(self._samples) < 2:
            self._samples.append(library.call("GpmSampleAlloc"))
        else:
            self._samples.reverse()
        self._sample(handle, self._samples[-1])
        self._sampled = time.monotonic()
        if len(self._samples) < 2:
            return {}
        question = self._question
        question.older, question.newer = (ctypes.cast(each, ctypes.c_void_p).value for each in self._samples)
        library.call("GpmMetricsGet", question)
        answers = question.answers[: question.count]
        if all(answer.code for answer in answers):
            raise library.error_of(answers[0].code)
        return {
            key: library.error_of(answer.code) if answer.code else answer.value
            for key, answer in zip(self._keys, answers, strict=True)
        }


class Mark:
    """Up to which of the driver's samples a GPU was read. They bear microseconds of the time of day."""

    def __init__(self) -> None:
        self._last = 0

    def forget(self) -> None:
        """Reset."""
        self._last = 0

    def new(self, ask: Callable[[int], Iterable[tuple[int, T]]]) -> list[T]:
        """Samples since the last reading, in order; ``ask`` gives times and samples after a time."""
        # after the clock was set back, all new samples would seem old
        since = self._last if self._last <= (time.time() + CLOCK_SECONDS) * 1e6 else 0
        found = sorted((each for each in ask(since) if each[0] > since), key=lambda each: each[0])
        self._last = found[-1][0] if found else since or 1
        return [sample for _, sample in found] if since else []
