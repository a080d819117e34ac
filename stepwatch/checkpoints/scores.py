"""How good the weights of a step are, by what the run's log says: read as the run exporter reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from exporter.runs.logs import find
from exporter.runs.model.run import Clock, Options
from exporter.runs.model.run_set import RunSet
from exporter.runs.signals.record import Event, Record
from stepwatch.checkpoints.best import VALIDATION
from stepwatch.operate import logfiles
from stepwatch.operate.logfiles import UnreadError

REWARD = "smoothed reward"
_SCORE = "validation_score"


class Score(NamedTuple):
    """What a checkpoint is chosen by.

    Attributes:
        value: The higher, the better.
        measure: ``validation`` or ``smoothed reward``.
        why: The same in words.
    """

    value: float
    measure: str
    why: str


@dataclass
class Scores:
    """What a run logged.

    Attributes:
        last: The last step logged; -1 before the first.
        evaluations: The validation score, by step.
        means: The exponentially weighted mean of the reward (weight 0.1), by step.
    """

    last: int = -1
    evaluations: dict[int, float] = field(default_factory=dict)
    means: dict[int, float] = field(default_factory=dict)

    def of(self, step: int) -> Score | None:
        """Return the score of the weights after a step, ``None`` if unknown.

        Where evaluations are logged, only they count: that of the step, else the last one before it.
        """
        for measure, values in ((VALIDATION, self.evaluations), (REWARD, self.means)):
            if values:
                at = max((each for each in values if each <= step), default=None)
                if at is None:
                    return None
                behind = "" if at == step else f", the last before step {step}"
                return Score(values[at], measure, f"{measure} {values[at]:.4g} at step {at}{behind}")
        return None


def read(logs: Sequence[Path], options: Options) -> Scores:
    """Return the scores of the first of these logs that has any.

    Args:
        logs: Best first.
        options: How logs are read.
    """
    for log in logs:
        scores: dict[str, Scores] = {}
        for found in find.files([str(log)]):
            with suppress(UnreadError):
                logfiles.read(found, options, partial(_Scored, scores))
        if scores:
            best = max(scores.values(), key=lambda each: each.last)
            if best.evaluations or best.means:
                return best
    return Scores()


class _Scored(RunSet):
    """The runs of a log, whose scores are noted as each record was taken."""

    def __init__(self, scores: dict[str, Scores], *about: Any, **known: Any) -> None:
        super().__init__(*about, **known)
        self._scores = scores

    def take(self, event: Event, clock: Clock) -> None:
        super().take(event, clock)
        run = self.runs.get(event.run)
        if run is None or not isinstance(event, Record):
            return
        if run.records <= 1:  # the first of a start from scratch
            self._scores[event.run] = Scores()
        scores, step = self._scores.setdefault(event.run, Scores()), run.progress.step
        scores.last = step
        found = run.reading.signals(event.values)
        if math.isfinite(value := found.get(_SCORE, math.nan)):
            scores.evaluations[step] = value
        if "reward" in found and (mean := run.statistics["reward"].mean()) is not None:
            scores.means[step] = mean
