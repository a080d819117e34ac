"""The driver's own samples of how busy a GPU is, of which a reading now and then sees few."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from exporter.gpu.backend import Failure, Reading, Tier
from exporter.gpu.nvml import batch, errors, library
from exporter.gpu.nvml.probes import Call, Found

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

        ``ask`` gives times and samples; its argument is the time after which.
        """
        since = self._since()
        found = sorted((each for each in ask(since) if each[0] > since), key=lambda each: each[0])
        self._last = found[-1][0] if found else since or 1
        return [sample for _, sample in found] if since else []

    def _since(self) -> int:
        """After the clock was set back, all new samples would seem old."""
        return self._last if self._last <= (time.time() + CLOCK_SECONDS) * 1e6 else 0


class _WindowMax:
    """The highest sample since the last reading. One that is impossible makes no other wrong."""

    def __init__(self) -> None:
        self.mark = Mark()

    def __call__(self, handle: Any) -> Iterator[Found]:
        percents = self.mark.new(lambda since: _samples(handle, since))
        good = [percent for percent in percents if percent is not None and 0 <= percent <= 100]
        if good:
            yield Reading("gpu_utilization_window_max_ratio", max(good) / 100)
        if len(good) < len(percents):
            yield Failure("GetSamples", "garbage")


def _samples(handle: Any, since: int) -> list[tuple[int, float | None]]:
    try:
        kind, found = library.ask(handle, "GetSamples", _UTILIZATION, since)
    except library.Error as error:
        if error.value != errors.NOT_FOUND:
            raise
        return []
    return [(sample.timeStamp, batch.value(kind, bytes(sample.sampleValue))) for sample in found]


def calls() -> tuple[Call, ...]:
    """They remember which samples they saw."""
    highest = _WindowMax()
    return (Call("GetSamples", Tier.FAST, highest, forget=highest.mark.forget),)
