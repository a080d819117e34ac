"""Series as the run exporter writes them: names and labels come from its contract, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from exporter.runs import signals
from exporter.runs.stats.catalogue import RUN_FAMILIES, STATES, STATISTICS

EXPORTER = {"job": "runs", "instance": "a:9410"}
OTHER_EXPORTER = {"job": "runs", "instance": "b:9410"}


class Series(NamedTuple):
    """A metric with its labels, but for the run's and the target's."""

    metric: str
    labels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Short enough to be part of a run's name."""
        return " ".join([self.metric.removeprefix("rl_"), *(value for _, value in self.labels)])

    def of(self, run: str, target: Mapping[str, str] = EXPORTER) -> str:
        """The whole selector of a run's series as one exporter serves it."""
        return selector(self.metric, run=run, **dict(self.labels), **target)


def selector(metric: str, **labels: str) -> str:
    """A series in promtool's notation."""
    inside = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items())
    return f"{metric}{{{inside}}}"


def statistic(name: str, signal: str, *, steps: int | None = None, alpha: str | None = None) -> Series:
    """A statistic that the exporter serves."""
    for each in STATISTICS:
        if (each.name, each.signal, each.steps, each.alpha) == (name, signal, steps, alpha):
            return Series(each.metric, tuple(each.labels.items()))
    raise KeyError(f"the exporter serves no {name} of {signal} with steps={steps}, alpha={alpha}")


def fact(name: str, **labels: str) -> Series:
    """A metric about the run itself."""
    if name not in {family.name for family in RUN_FAMILIES}:
        raise KeyError(f"the exporter serves no {name}")
    return Series(name, tuple(labels.items()))


def latest(signal: str) -> Series:
    """The last value of a signal."""
    if signal not in signals.NAMES:
        raise KeyError(f"there is no signal {signal}")
    return Series(f"rl_{signal}")


STATE = Series("rl_run_state")
"""Stands for the five series of a run's state: its value is the name of the state it is in."""


def state_series(state: str | None) -> dict[Series, float | None]:
    """The series of all states for a run in one of them, or for one that is not there."""
    assert state in (*STATES, None), state
    return {
        Series(STATE.metric, (("state", each),)): None if state is None else float(each == state)
        for each in STATES
    }
