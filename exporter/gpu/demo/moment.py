"""What one simulated card is doing at one time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from exporter.gpu.backend import Extras
from exporter.gpu.demo import load
from exporter.gpu.demo.load import Phase
from exporter.gpu.demo.profiles import Profile

LAG_SECONDS = 0.2
"""Each card is a little behind the one before it."""


class Moment(NamedTuple):
    """All values follow from this. ``seconds`` of work that the card has done; ``sick`` if it fails."""

    profile: Profile
    extras: Extras
    number: int
    seed: int
    seconds: float
    sick: bool

    @property
    def phase(self) -> Phase:
        """What the card does."""
        return load.phase(self.seconds)

    @property
    def jitter(self) -> float:
        """A small share by which values are off, another one each second."""
        return dice(self.seed, self.number, round(self.seconds)).uniform(-0.02, 0.02)

    def total(self, rate: Callable[[Phase], float]) -> float:
        """A counter that grows at this rate per second."""
        return load.total(self.seconds, rate)

    def mean(self, rate: Callable[[Phase], float], seconds: float) -> float:
        """The mean of a rate over the last so many seconds, 0 before the start."""
        before = load.total(max(0.0, self.seconds - seconds), rate)
        return (self.total(rate) - before) / seconds


def dice(*seed: int) -> Random:
    """Numbers that follow from the seed."""
    return Random(str(seed))  # noqa: S311  (no secret comes of it)
