"""What a simulated card is doing at one time: training in steps of the same phases, or failing."""

from __future__ import annotations

from collections.abc import Callable
from math import fsum
from random import Random
from typing import NamedTuple

from exporter.gpu.backend import Extras
from exporter.gpu.demo.profiles import Profile

LAG_SECONDS = 0.2
"""Each card is a little behind the one before it."""
XID_AFTER_SECONDS = 45.0
XID_EVERY_SECONDS = 180.0
HOT_AFTER_SECONDS = 60.0
LINK_ERROR_SECONDS = 2.0
"""From one bad packet to the next."""


class Phase(NamedTuple):
    """A part of a training step: how long it takes, and what it does to a GPU.

    ``nvlink`` and ``pcie`` in bytes per second and direction, of a card whose links are the fastest;
    everything else but ``seconds`` is a share, of power and clocks of what the card can do at most.
    """

    seconds: float
    utilization: float
    memory: float
    power: float
    clock: float
    sm: float
    occupancy: float
    tensor: float
    dram: float
    nvlink: float
    pcie: float

    @property
    def busy(self) -> bool:
        """Whether the card gets hot."""
        return self.utilization > 0.5


SAMPLING = Phase(12, 0.93, 0.82, 0.74, 0.95, 0.70, 0.25, 0.22, 0.62, 30e9, 0.2e9)
SYNCING = Phase(2, 0.08, 0.55, 0.20, 0.60, 0.05, 0.02, 0.0, 0.30, 150e9, 12e9)
UPDATING = Phase(8, 0.98, 0.91, 0.96, 0.90, 0.88, 0.40, 0.46, 0.48, 90e9, 1e9)
PREPARING = Phase(2, 0.03, 0.42, 0.17, 0.30, 0.01, 0.0, 0.0, 0.01, 0.0, 4e9)
STEP = (SAMPLING, SYNCING, UPDATING, PREPARING)
"""Responses are sampled, weights move, the policy is updated, the next batch is prepared."""
STEP_SECONDS = sum(each.seconds for each in STEP)

Rate = Callable[[Phase], float]


def step_mean(rate: Rate) -> float:
    """The mean of a rate over a step."""
    # Exact: `sum` rounds otherwise before Python 3.12.
    return fsum(each.seconds * rate(each) for each in STEP) / STEP_SECONDS


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
        rest = self.seconds % STEP_SECONDS
        for each in STEP:
            if rest < each.seconds:
                return each
            rest -= each.seconds
        return STEP[-1]

    @property
    def jitter(self) -> float:
        """A small share by which values are off, another one each second."""
        return rng(self.seed, self.number, round(self.seconds)).uniform(-0.02, 0.02)

    def total(self, rate: Rate) -> float:
        """A counter that grows at this rate per second: its integral over all phases since the start."""
        steps, rest = divmod(self.seconds, STEP_SECONDS)
        found = steps * STEP_SECONDS * step_mean(rate)
        for each in STEP:
            found += min(rest, each.seconds) * rate(each)
            rest = max(0.0, rest - each.seconds)
        return found

    def mean(self, rate: Rate, seconds: float) -> float:
        """The mean of a rate over the last ``seconds``, 0 before the start."""
        before = self._replace(seconds=max(0.0, self.seconds - seconds))
        return (self.total(rate) - before.total(rate)) / seconds

    @property
    def memory_errors(self) -> int:
        """Uncorrectable memory errors so far, each with an Xid error."""
        late = self.seconds - XID_AFTER_SECONDS
        return 1 + int(late // XID_EVERY_SECONDS) if self.sick and late >= 0 else 0

    @property
    def link_errors(self) -> int:
        """Bad packets on NVLink so far."""
        return int(self.seconds // LINK_ERROR_SECONDS) if self.sick else 0

    @property
    def heat(self) -> float:
        """Which share of the way to too hot the card has gone, from 0 to 1."""
        return min(1.0, self.seconds / HOT_AFTER_SECONDS) if self.sick else 0.0

    @property
    def slowed(self) -> bool:
        """Whether the clock is held down for the heat."""
        return self.heat == 1 and self.phase.busy

    @property
    def slowed_seconds(self) -> float:
        """For how long, so far, it was."""
        cool = self._replace(seconds=min(self.seconds, HOT_AFTER_SECONDS))
        return self.total(_busy) - cool.total(_busy) if self.sick else 0.0


def _busy(phase: Phase) -> float:
    return phase.busy


def rng(*seed: int) -> Random:
    """Numbers that follow from the seed."""
    return Random(str(seed))  # noqa: S311  (no secret comes of it)


def uuid(kind: str, *seed: int) -> str:
    """A name of this kind, ``GPU`` or ``MIG``, that looks like the driver's."""
    digits = f"{rng(*seed).getrandbits(128):032x}"
    return f"{kind}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
