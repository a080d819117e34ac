"""A run as it is now, copied while nothing of it changes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from exporter.runs.model.history import SMOOTHED
from exporter.runs.model.run import Run
from exporter.runs.overview.models import Firing, Health, RunSummary
from exporter.runs.signals.candidates import ENOUGH_RECORDS, Candidate
from exporter.runs.stats.statistics import is_measured
from exporter.runs.visible.views import View

FEW = 3
"""Values whose median is held against limits, where there is no smoothed curve: rules ask for as many."""


class Glance(NamedTuple):
    """What is shown of a run without its history.

    ``latest`` are its last values, ``usual`` the medians of the last few and ``means`` the smoothed
    ones, by signal. ``last`` is when its last step was, ``start`` when the first was, in seconds since the
    epoch. ``candidates`` are signals that it lacks, with the keys that may carry them.
    """

    name: str
    state: str
    framework: str
    step: int | None
    total: int | None
    start: float | None
    last: float | None
    restarts: int
    resumes: int
    latest: Mapping[str, float]
    usual: Mapping[str, float]
    means: Mapping[str, float]
    candidates: tuple[Candidate, ...] = ()

    @classmethod
    def of(cls, view: View) -> Glance:
        """A look at the run; to be made while nothing is read."""
        run = view.run
        return cls(
            view.name,
            view.state,
            run.reading.framework,
            run.progress.step if run.progress.step >= 0 else None,
            run.total,
            run.times.start,
            run.times.last,
            run.restarts,
            run.resumes,
            {name: value for name, value in run.latest.items() if is_measured(name, run.statistics)},
            _usual(run),
            _means(run),
            run.candidates() if run.records >= ENOUGH_RECORDS else (),
        )

    def summary(self, healths: tuple[Health, ...], firing: tuple[Firing, ...]) -> RunSummary:
        """The run in one line."""
        return RunSummary(
            self.name,
            self.state,
            self.framework,
            self.step,
            self.total,
            None if self.last is None else max(0.0, time.time() - self.last),
            self.restarts,
            self.resumes,
            healths,
            firing,
        )


def _usual(run: Run) -> dict[str, float]:
    found = ((name, of_signal.over(median, FEW, 1)) for name, of_signal in run.statistics.items())
    return {name: value for name, value in found if value is not None and is_measured(name, run.statistics)}


def _means(run: Run) -> dict[str, float]:
    found = ((name, run.statistics[name].mean()) for name in SMOOTHED)
    return {name: value for name, value in found if value is not None and is_measured(name, run.statistics)}
