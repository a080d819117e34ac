"""Simulated GPUs that train a model together; all values follow from the seed and the clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from exporter.gpu.backend import Card, Event, Extras, Reading
from exporter.gpu.demo.card import DemoCard
from exporter.gpu.demo.moment import Moment
from exporter.gpu.demo.profiles import KNOWN


class Demo:
    """The GPUs and their errors. ``clock`` in seconds; ``sleep`` waits that long."""

    def __init__(
        self,
        extras: Extras,
        seed: int = 7,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._extras = extras
        self._seed = seed
        self._clock = clock
        self._sleep = sleep
        self._started = 0.0
        self._errors = 0
        self._cards: list[Card] = []

    def open(self) -> None:
        self._started = self._clock()
        profile, sick = KNOWN[self._extras.profile], self._extras.sick
        self._cards = [
            DemoCard(Moment(profile, self._extras, number, self._seed, 0.0, number == sick), self._seconds)
            for number in range(profile.gpus)
        ]

    def _seconds(self) -> float:
        return self._clock() - self._started

    def system(self) -> list[Reading]:
        labels = {"driver_version": "demo", "cuda_version": "demo", "nvml_version": "demo"}
        return [Reading("gpu_driver_info", 1, labels)]

    def cards(self) -> list[Card]:
        return self._cards

    def events(self, seconds: float) -> list[Event]:
        profile, number = KNOWN[self._extras.profile], self._extras.sick
        if number is not None:
            sick = Moment(profile, self._extras, number, self._seed, self._seconds(), sick=True)
            if sick.memory_errors > self._errors:
                self._errors += 1
                return [Event(self._cards[number].uuid, profile.xid, time.time())]
        self._sleep(seconds)
        return []

    def close(self) -> None:
        """There is nothing to release."""
