"""The driver's own samples of how busy a GPU is, of which a reading now and then sees few."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from exporter.gpu.backend import ReadError, Reading, Tier
from exporter.gpu.nvml import errors, fields, library
from exporter.gpu.nvml.activity import ratio
from exporter.gpu.nvml.ways import Call

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
        """Begin anew."""
        self._last = 0

    def new(self, ask: Callable[[int], Iterable[tuple[int, T]]]) -> list[T]:
        """What came since the last reading, in order. The first reading only finds out where to begin.

        ``ask`` gives times and samples; it is told after which time.
        """
        since = self._since()
        found = sorted((each for each in ask(since) if each[0] > since), key=lambda each: each[0])
        self._last = found[-1][0] if found else since or 1
        return [sample for _, sample in found] if since else []

    def _since(self) -> int:
        """After the clock was set back, all new samples would seem old."""
        return self._last if self._last <= (time.time() + CLOCK_SECONDS) * 1e6 else 0


class _WindowMax:
    """The highest sample since the last reading."""

    def __init__(self) -> None:
        self.mark = Mark()

    def __call__(self, handle: Any) -> list[Reading]:
        percents = self.mark.new(lambda since: _samples(handle, since))
        return [Reading("gpu_utilization_window_max_ratio", _highest(percents))] if percents else []


def _samples(handle: Any, since: int) -> list[tuple[int, float]]:
    try:
        kind, found = library.ask(handle, "GetSamples", _UTILIZATION, since)
    except library.Error as error:
        if error.value != errors.NOT_FOUND:
            raise
        return []
    return [(sample.timeStamp, fields.value(kind, sample.sampleValue)) for sample in found]


def _highest(percents: Iterable[float]) -> float:
    """One impossible sample makes no other wrong. Raises ``ReadError`` if all are."""
    shares = []
    for percent in percents:
        with suppress(ReadError):
            shares.append(ratio(percent))
    if not shares:
        raise ReadError("garbage")
    return max(shares)


def calls() -> tuple[Call, ...]:
    """They remember which samples they saw."""
    highest = _WindowMax()
    return (Call("GetSamples", Tier.FAST, highest, forget=highest.mark.forget),)
