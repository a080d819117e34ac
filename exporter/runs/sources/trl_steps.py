"""The steps of a Hugging Face trainer's records, which are printed without them."""

from __future__ import annotations

from collections import deque

from exporter.runs.signals.numbers import number
from exporter.runs.sources.progress_bar import ProgressBars
from exporter.runs.sources.python_dict import Values

COUNTERS = ("num_tokens", "epoch")
"""They only grow, until the training starts anew."""


class Steps:
    """Counts on from record to record, with what the progress bar tells.

    ``last`` is the step of the last record, 0 before the first. ``every``: the trainer logs every
    that many steps, if the log says so.
    """

    def __init__(self) -> None:
        self.bars = ProgressBars()
        self.last = 0
        self.every: int | None = None
        self._gaps: deque[int] = deque(maxlen=2)
        self._counters: dict[str, float] = {}
        self._first: int | None = None
        self._over = False

    @property
    def in_doubt(self) -> bool:
        """Must the record that comes now wait until its bar is drawn again, which tells its step?"""
        return self.bars.in_doubt(None if self.bars.restarted else self._expected())

    def of_training(self, values: Values) -> int:
        """The step of the next record of the training."""
        self.last = max(self.last, self.bars.last_step())
        counters = _counters(values)
        if self._over or self.bars.restarted or self._fell(counters):
            self._begin()
        self._counters |= counters
        step = self.bars.step_of_record(self.last, self._expected())
        if step is None:
            step = self._counted()
        elif self.last:
            self._gaps.append(step - self.last)
        else:
            self._first = step
        self.last = step
        return step

    def of_evaluation(self) -> int:
        """The step of an evaluation: that of the record before."""
        begins = self.bars.restarted
        shown = self.bars.skip_record()
        if begins:
            self._begin()
            self.last = shown or 0
        return self.last

    def logged(self, step: int) -> int:
        """The record itself holds its step."""
        self.last = step
        return step

    def end(self) -> None:
        """The training is over, as its last record says: another record is another training's."""
        self.bars.skip_record()
        self._over = True

    def _begin(self) -> None:
        self.last, self._first, self._over = 0, None, False
        self._gaps.clear()
        self._counters = {}
        self.bars.begin()

    def _fell(self, counters: dict[str, float]) -> bool:
        return any(value < self._counters.get(name, value) for name, value in counters.items())

    def _expected(self) -> int | None:
        """The next step, if the last two gaps were alike."""
        if len(self._gaps) < 2 or self._gaps[0] != self._gaps[1]:
            return None
        return self.last + self._gaps[1]

    def _counted(self) -> int:
        """Count on. A bar that never left a mark may be late, but is never ahead."""
        if self._first is None:
            return max(self.last + (self.every or 1), self.bars.position)
        return self.last + (self.every or (self._gaps[-1] if self._gaps else self._first))


def _counters(values: Values) -> dict[str, float]:
    found = {name: number(values[name]) for name in COUNTERS if name in values}
    return {name: value for name, value in found.items() if value is not None}
