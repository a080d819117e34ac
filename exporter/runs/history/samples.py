"""Statistics of a run at the ends of stretches of its steps: what limits and smoothed curves are made of."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter.runs.contract import Statistic
from exporter.runs.history.extremes import Detail
from exporter.runs.statistics import Read, SignalStatistics, is_measured

MOST_SAMPLES = 256
"""Once there are as many, every second one goes: a limit moves slowly, and costs 2 kB."""

STEP = "rl_step"


def series(statistic: Statistic) -> str:
    """A statistic as formulas name it: as PromQL does, its labels in their order, without the run."""
    inside = ",".join(f'{name}="{value}"' for name, value in statistic.labels.items())
    return f"{statistic.metric}{{{inside}}}"


SAMPLED = frozenset(
    {
        'rl_best{signal="reward"}',
        'rl_noise{signal="reward"}',
        'rl_ewma{signal="reward",alpha="0.1"}',
        'rl_mean_over_steps{signal="reward",steps="32"}',
        'rl_confirmed_best{signal="validation_score"}',
        'rl_noise{signal="validation_score"}',
        'rl_start{signal="kl"}',
        'rl_noise{signal="kl"}',
        'rl_start{signal="kl_teacher"}',
        'rl_noise{signal="kl_teacher"}',
        'rl_start{signal="policy_kl"}',
        'rl_start{signal="entropy"}',
        'rl_peak{signal="entropy"}',
        'rl_level_over_steps{signal="grad_norm",steps="64"}',
        'rl_level_over_steps{signal="value_loss",steps="64"}',
        'rl_start{signal="response_length"}',
        'rl_peak{signal="response_length"}',
        'rl_median_over_steps{signal="response_length",steps="64"}',
        'rl_median_over_steps{signal="tokens_per_second",steps="64"}',
        'rl_median_over_steps{signal="tokens_per_second_per_gpu",steps="64"}',
        'rl_start{signal="truncated_ratio"}',
    }
)
"""What the panels' formulas read; a test demands that these are all. None of them is held."""

Readers = list[tuple[str, str, Read]]
"""Name and signal of a statistic, and what reads it."""


def sampled(statistics: Mapping[str, SignalStatistics]) -> Readers:
    """What reads them of a run."""
    return [
        (name, signal, read)
        for signal, of_signal in statistics.items()
        for statistic, read in (of_signal.readers if of_signal.begun else ())
        if (name := series(statistic)) in SAMPLED
    ]


class Table(NamedTuple):
    """Statistics of a run: ``columns`` has a value for each of the ``steps``, NaN where there is none."""

    run: str
    steps: Sequence[int]
    columns: Mapping[str, Sequence[float]]

    def column(self, name: str) -> list[float | None]:
        """A statistic over the steps, or the step itself."""
        if name == STEP:
            return [float(step) for step in self.steps]
        found = self.columns.get(name)
        return [None] * len(self.steps) if found is None else [None if math.isnan(x) else x for x in found]


class Samples:
    """Takes a sample of the statistics now and then: at every step at first, less often in long runs."""

    __slots__ = ("_begun", "_columns", "_detail", "_every", "_of", "_readers", "_step", "_steps", "_taken")

    def __init__(self, detail: Detail) -> None:
        self._detail = detail
        self._begun = 0
        self._steps = array("q")
        self._columns: dict[str, array[float]] = {}
        self._every, self._taken = 1, 0
        self._step: int | None = None
        self._of: Mapping[str, SignalStatistics] = {}
        self._readers: Readers = []

    def note(self, step: int, statistics: Mapping[str, SignalStatistics]) -> None:
        """A record of this step was measured; a step may have several."""
        if step != self._step:
            self._step = step
            self._taken += 1
        if self._taken % self._every == 0:
            self._take(step, statistics)

    def table(self, run: str, statistics: Mapping[str, SignalStatistics]) -> Table:
        """What was sampled, and how it is now; it stays as it is."""
        whole = Samples(self._detail)
        whole._steps = self._steps[:]
        whole._columns = {name: column[:] for name, column in self._columns.items()}
        if self._step is not None:
            whole._put(self._step, statistics)
        return Table(run, whole._steps, whole._columns)

    def now(self, run: str, statistics: Mapping[str, SignalStatistics]) -> Table:
        """How it is now, as a table of one row."""
        if self._step is None:
            return Table(run, (), {})
        return Table(run, (self._step,), {name: (value,) for name, value in self._now(statistics)})

    def _take(self, step: int, statistics: Mapping[str, SignalStatistics]) -> None:
        self._put(step, statistics)
        while len(self._steps) >= min(MOST_SAMPLES, self._detail.stretches):
            # The end of each two stays, so that the next ones go on in the same distance.
            self._steps = self._steps[1::2]
            self._columns = {name: column[1::2] for name, column in self._columns.items()}
            self._every *= 2

    def _put(self, step: int, statistics: Mapping[str, SignalStatistics]) -> None:
        """Add a row, or put it in the place of the last one if that is of the same step."""
        if not self._steps or self._steps[-1] != step:
            self._steps.append(step)
            for column in self._columns.values():
                column.append(math.nan)
        for name, value in self._now(statistics):
            column = self._columns.get(name) or self._columns.setdefault(name, self._blank())
            column[-1] = value

    def _now(self, statistics: Mapping[str, SignalStatistics]) -> Iterator[tuple[str, float]]:
        begun = sum([each.begun for each in statistics.values()])
        if statistics is not self._of or begun != self._begun:  # a mark makes new ones
            self._of, self._begun, self._readers = statistics, begun, sampled(statistics)
        for name, signal, read in self._readers:
            if (value := read()) is not None and is_measured(signal, statistics):
                yield name, value

    def _blank(self) -> array[float]:
        return array("d", [math.nan]) * len(self._steps)
