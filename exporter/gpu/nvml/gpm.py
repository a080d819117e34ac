"""How hard the parts of a GPU worked between two readings, by its own counters (GPM): Hopper and later."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from exporter.gpu.backend import Failure, Missing, ReadError, Reading, Tier
from exporter.gpu.nvml import errors, library
from exporter.gpu.nvml.probes import Call, Found, number

LEAST_SECONDS = 0.1
"""Between two samples; the driver gives no values for less."""
_ROUNDING = 1.0
"""Percent by which a mean may be above 100."""
_MIB = 2**20
_MOST_RATE = 2**20
"""In MiB per second: four times what PCIe 7.0 carries over 16 lanes."""
_ROOM = 98
"""Answers that NVML's first structure had room for: no driver may rely on more."""

Take = Callable[[Any, Any], Any]
"""Have a GPU, by its handle, fill a sample."""


class Metric(NamedTuple):
    """NVML's number of a quantity, its unit in ours, and what it becomes."""

    number: int
    convert: Callable[[float], float]
    name: str
    labels: Mapping[str, str] = {}


def _share(percent: float) -> float:
    return min(number(percent, most=100 + _ROUNDING), 100) / 100


def _rate(mebibytes: float) -> float:
    return number(mebibytes, most=_MOST_RATE) * _MIB


SHARES = (
    Metric(1, _share, "gpu_graphics_active_ratio"),
    Metric(2, _share, "gpu_sm_active_ratio"),
    Metric(3, _share, "gpu_sm_occupancy_ratio"),
    Metric(10, _share, "gpu_dram_active_ratio"),
    Metric(5, _share, "gpu_pipe_active_ratio", {"pipe": "tensor"}),
    Metric(11, _share, "gpu_pipe_active_ratio", {"pipe": "fp64"}),
    Metric(12, _share, "gpu_pipe_active_ratio", {"pipe": "fp32"}),
    Metric(13, _share, "gpu_pipe_active_ratio", {"pipe": "fp16"}),
    Metric(4, _share, "gpu_pipe_active_ratio", {"pipe": "int"}),
)
_BOARD = (
    *SHARES,
    Metric(20, _rate, "gpu_pcie_transmit_bytes_per_second"),
    Metric(21, _rate, "gpu_pcie_receive_bytes_per_second"),
)


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

    def __init__(self, metrics: tuple[Metric, ...]) -> None:
        super().__init__(version=1, count=len(metrics))
        for answer, metric in zip(self.answers, metrics, strict=False):
            answer.number = metric.number

    def ask(self, older: Any, newer: Any) -> list[_Answer]:
        """Raises ``library.Error`` if the samples cannot be compared."""
        self.older, self.newer = _address(older), _address(newer)
        library.call("GpmMetricsGet", self)
        return list(self.answers[: self.count])


def _address(sample: Any) -> int | None:
    return ctypes.cast(sample, ctypes.c_void_p).value


class Window:
    """Means over the time since the last reading, which is kept as a sample in the driver's library.

    ``name`` is that of ``take``. The first reading gives nothing. One that comes too early gives what
    the last one gave. Raises ``library.Error`` where the GPU has no such counters.
    """

    def __init__(self, name: str, take: Take, metrics: tuple[Metric, ...]) -> None:
        self._name = name
        self._take = take
        self._metrics = metrics
        self._question = _Question(metrics)
        self._samples: list[Any] = []
        self._taken = -math.inf
        self._found: list[Found] = []

    def forget(self) -> None:
        """Begin anew, with nothing kept in the library."""
        while self._samples:
            with suppress(library.Error):  # the library may be closed, or the GPU lost
                library.call("GpmSampleFree", self._samples.pop())
        self._taken = -math.inf

    def __call__(self, handle: Any) -> list[Found]:
        if time.monotonic() - self._taken >= LEAST_SECONDS:
            try:
                self._found = self._read(handle)
            except library.Error:
                self.forget()
                raise
        return self._found

    def _read(self, handle: Any) -> list[Found]:
        """Take a sample, in place of the last but one, and compare it with the last."""
        if not self._samples:
            _demand_support(handle)
        if len(self._samples) < 2:
            self._samples.append(library.call("GpmSampleAlloc"))
        else:
            self._samples.reverse()
        self._take(handle, self._samples[-1])
        self._taken = time.monotonic()
        return self._compare(*self._samples) if len(self._samples) == 2 else []

    def _compare(self, older: Any, newer: Any) -> list[Found]:
        answers = self._question.ask(older, newer)
        codes = {answer.code for answer in answers}
        if errors.OK not in codes:
            raise library.Error(min(codes))
        return list(map(self._meaning, self._metrics, answers))

    def _meaning(self, metric: Metric, answer: _Answer) -> Found:
        part = f"{self._name}({metric.labels.get('pipe', metric.name)})"
        if answer.code != errors.OK:
            return Missing(part, errors.name(answer.code))
        try:
            return Reading(metric.name, metric.convert(answer.value), metric.labels)
        except ReadError as problem:
            return Failure(part, problem.code)


def _demand_support(handle: Any) -> None:
    if not library.call("GpmQueryDeviceSupport", handle).isSupportedDevice:
        raise library.Error(errors.NOT_SUPPORTED)


def calls() -> tuple[Call, ...]:
    """They keep a sample in the driver's library until they forget it."""
    window = Window("GpmSampleGet", _take, _BOARD)
    return (Call("GpmSampleGet", Tier.FAST, window, forget=window.forget),)


def _take(handle: Any, sample: Any) -> None:
    library.call("GpmSampleGet", handle, sample)
