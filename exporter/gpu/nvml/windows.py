"""Values over the time between two readings: a GPU's own counters (GPM), and the driver's samples."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from exporter.gpu.backend import Failure, Missing, ReadError, Reading, Tier
from exporter.gpu.nvml import library
from exporter.gpu.nvml.library import Call, Found, decode, number

LEAST_SECONDS = 0.1
"""Between two samples; the driver gives no values for less."""
_MIB = 2**20
_MOST_PERCENT = 101
"""A mean may be a little above 100, by rounding."""
_MOST_RATE = 2**20
"""In MiB per second: four times what PCIe 7.0 carries over 16 lanes."""
_ROOM = 98
"""Answers that NVML's first structure had room for: no driver may rely on more."""
SHARES = {
    1: ("gpu_graphics_active_ratio", ""),
    2: ("gpu_sm_active_ratio", ""),
    3: ("gpu_sm_occupancy_ratio", ""),
    10: ("gpu_dram_active_ratio", ""),
    5: ("gpu_pipe_active_ratio", "tensor"),
    11: ("gpu_pipe_active_ratio", "fp64"),
    12: ("gpu_pipe_active_ratio", "fp32"),
    13: ("gpu_pipe_active_ratio", "fp16"),
    4: ("gpu_pipe_active_ratio", "int"),
}
"""Metric and pipe by NVML's number of a quantity in percent."""
_RATES = {20: ("gpu_pcie_transmit_bytes_per_second", ""), 21: ("gpu_pcie_receive_bytes_per_second", "")}
"""In MiB per second."""


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

    ``sample`` has a GPU, by its handle, fill a sample, and ``name`` is the call's. The first reading gives
    nothing; one that comes too early what the last one gave. Raises ``library.Error`` where the GPU has none.
    """

    def __init__(self, name: str, sample: Callable[[Any, Any], Any], *, rates: bool = False) -> None:
        self._name, self._sample = name, sample
        self._metrics = {**SHARES, **(_RATES if rates else {})}
        self._question = _Question(version=1, count=len(self._metrics))
        for answer, metric in zip(self._question.answers, self._metrics, strict=False):
            answer.number = metric
        self._samples: list[Any] = []
        self._sampled = -math.inf
        self._found: list[Found] = []

    def forget(self) -> None:
        """Reset, and free the samples in the library."""
        while self._samples:
            with suppress(library.Error):  # the library may be closed, or the GPU lost
                library.call("GpmSampleFree", self._samples.pop())
        self._sampled = -math.inf

    def __call__(self, handle: Any) -> list[Found]:
        if time.monotonic() - self._sampled >= LEAST_SECONDS:
            try:
                self._found = self._read(handle)
            except library.Error:
                self.forget()
                raise
        return self._found

    def _read(self, handle: Any) -> list[Found]:
        """Take a sample, in place of the last but one, and compare it with the last."""
        if not self._samples and not library.call("GpmQueryDeviceSupport", handle).isSupportedDevice:
            raise library.Error(library.NOT_SUPPORTED)
        if len(self._samples) < 2:
            self._samples.append(library.call("GpmSampleAlloc"))
        else:
            self._samples.reverse()
        self._sample(handle, self._samples[-1])
        self._sampled = time.monotonic()
        if len(self._samples) < 2:
            return []
        question = self._question
        question.older, question.newer = (ctypes.cast(each, ctypes.c_void_p).value for each in self._samples)
        library.call("GpmMetricsGet", question)
        answers = list(question.answers[: question.count])
        codes = {answer.code for answer in answers}
        if library.OK not in codes:
            raise library.Error(min(codes))
        return [self._found_of(answer) for answer in answers]

    def _found_of(self, answer: _Answer) -> Found:
        metric, pipe = self._metrics[answer.number]
        part = f"{self._name}({pipe or metric})"
        if answer.code != library.OK:
            return Missing(part, library.error_name(answer.code))
        try:
            if answer.number in _RATES:
                return Reading(metric, number(answer.value, _MOST_RATE) * _MIB)
            share = min(number(answer.value, _MOST_PERCENT), 100) / 100
        except ReadError as problem:
            return Failure(part, problem.code)
        return Reading(metric, share, {"pipe": pipe} if pipe else {})


CLOCK_SECONDS = 1
"""By how much a sample may seem to come from the future."""
_UTILIZATION = 1
"""NVML's number of this kind of samples."""

T = TypeVar("T")


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


def _samples(handle: Any, since: int) -> list[tuple[int, float | None]]:
    try:
        kind, found = library.ask(handle, "GetSamples", _UTILIZATION, since)
    except library.Error as error:
        if error.value != library.NOT_FOUND:
            raise
        return []
    return [(sample.timeStamp, decode(kind, bytes(sample.sampleValue))) for sample in found]


def calls() -> tuple[Call, ...]:
    """They remember which samples they saw, and hold one in the driver's library."""
    mark = Mark()
    window = Window("GpmSampleGet", lambda handle, at: library.call("GpmSampleGet", handle, at), rates=True)

    def highest(handle: Any) -> Iterator[Found]:
        """The highest sample since the last reading. One that is impossible makes no other wrong."""
        percents = mark.new(lambda since: _samples(handle, since))
        good = [percent for percent in percents if percent is not None and 0 <= percent <= 100]
        if good:
            yield Reading("gpu_utilization_window_max_ratio", max(good) / 100)
        if len(good) < len(percents):
            yield Failure("GetSamples", "garbage")

    return (
        Call("GetSamples", Tier.FAST, highest, forget=mark.forget),
        Call("GpmSampleGet", Tier.FAST, window, forget=window.forget),
    )
