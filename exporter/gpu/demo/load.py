"""The training that the simulated GPUs do: one step after the other, each of the same phases."""

from __future__ import annotations

from collections.abc import Callable
from math import fsum
from typing import NamedTuple


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


SAMPLING = Phase(12, 0.93, 0.82, 0.74, 0.95, 0.70, 0.25, 0.22, 0.62, 30e9, 0.2e9)
SYNCING = Phase(2, 0.08, 0.55, 0.20, 0.60, 0.05, 0.02, 0.0, 0.30, 150e9, 12e9)
UPDATING = Phase(8, 0.98, 0.91, 0.96, 0.90, 0.88, 0.40, 0.46, 0.48, 90e9, 1e9)
PREPARING = Phase(2, 0.03, 0.42, 0.17, 0.30, 0.01, 0.0, 0.0, 0.01, 0.0, 4e9)
STEP = (SAMPLING, SYNCING, UPDATING, PREPARING)
"""Responses are sampled, weights move, the policy is updated, the next batch is prepared."""
STEP_SECONDS = sum(each.seconds for each in STEP)


def mean(rate: Callable[[Phase], float]) -> float:
    """The mean of a rate over a step."""
    # Exact: `sum` rounds otherwise before Python 3.12.
    return fsum(each.seconds * rate(each) for each in STEP) / STEP_SECONDS


def phase(seconds: float) -> Phase:
    """What happens so long after the start."""
    rest = seconds % STEP_SECONDS
    for each in STEP:
        if rest < each.seconds:
            return each
        rest -= each.seconds
    return STEP[-1]


def total(seconds: float, rate: Callable[[Phase], float]) -> float:
    """The integral of a rate per second over all phases since the start."""
    steps, rest = divmod(seconds, STEP_SECONDS)
    found = steps * STEP_SECONDS * mean(rate)
    for each in STEP:
        found += min(rest, each.seconds) * rate(each)
        rest = max(0.0, rest - each.seconds)
    return found
