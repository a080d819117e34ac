"""What a Hugging Face trainer prints: ``{'loss': 0.02, 'reward': 0.5, ..., 'epoch': 0.02}``.

TRL and what is built on it (Unsloth, ms-swift). transformers 4 prints numbers, 5 prints texts with
four digits. The dict stands alone in its line but for tqdm's bars, and does not hold its step.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterator
from math import isfinite, nan

from exporter.runs.formats.base import Source
from exporter.runs.formats.console import HINTS, Dicts, Values, drawn, ending
from exporter.runs.formats.progress_bar import ProgressBars, is_torn
from exporter.runs.signals import NONE_MAPPED, Mapped
from exporter.runs.signals.record import PROGRESS, Ended, Event, Record, TotalSteps, number

ALIKE = 0.05  # Steps an epoch, by two bars, may differ by as much: the bars are late, and epochs are rounded
COUNTERS = ("num_tokens", "epoch")  # they only grow, until the training restarts


class Steps:
    """Counts on with what the bar shows; ``last`` is 0 before the first record, ``every`` the interval."""

    def __init__(self) -> None:
        self.bars = ProgressBars()
        self.last = 0
        self.every: int | None = None
        self._gaps: deque[int] = deque(maxlen=2)
        self._counters: dict[str, float] = {}
        self._first: int | None = None
        self.leads = False
        """The bar stands before all records: it is drawn ahead of them, or its line is written again."""
        self._moved = 0, 0.0, False
        """What a bar showed when it moved last, steps an epoch by that, whether they were as many before."""
        self._over = False

    @property
    def in_doubt(self) -> bool:
        """Whether the record that comes now must wait until its bar is drawn again and shows its step."""
        return self.bars.in_doubt(None if self.bars.restarted else self._expected())

    def _see(self, values: Values) -> dict[str, float]:
        """The counters of the next record; begins another training where it is the first of that."""
        self.last = max(self.last, self.bars.last_step())
        found = {name: number(values[name]) for name in COUNTERS if name in values}
        counters = {name: value for name, value in found.items() if value is not None}
        fell = any(value < self._counters.get(name, value) for name, value in counters.items())
        if self._over or self.bars.restarted or fell:
            self._begin()
        self._counters |= counters
        return counters

    def shown(self, values: Values) -> int:
        """The step that a bar shows before the first record, without being cleared for it; 0 if none.

        The record waits for the next one, which shows whether the bar leads.
        """
        self._see(values)
        self.bars.choose()
        unmarked = not self.last and not self.bars.marked
        return self.bars.position if unmarked and self.bars.position > (self.every or 1) else 0

    def of_training(self, values: Values) -> int:
        """The step of the next record of the training."""
        counters = self._see(values)
        step = self.bars.step_of_record(self.last, self._expected())
        if step is not None and self.last:
            self._gaps.append(step - self.last)
        elif step is not None:
            self._first = step
        else:
            step = self._unmarked(counters.get("epoch"))
        self.last = step
        self.bars.logged(step)
        return step

    def _unmarked(self, epoch: float | None) -> int:
        """The step of a record whose bar left no mark.

        Where a bar showed as many steps an epoch twice, the epoch shows the steps until it moves again.
        """
        position = 0 if self.leads else self.bars.position
        if self._first is None:  # the bar may be late, but is not ahead, unless it leads
            step = max(self.last + (self.every or 1), position)
        elif gap := self.every or (self._gaps[-1] if self._gaps else None):
            return self.last + gap
        else:  # the trainer has not made more steps than its bar shows
            step = max(self.last + 1, min(self.last + self._first, position))
        shown, rate, alike = self._moved
        if epoch and position > shown:
            self._moved = position, step / epoch, abs(step / epoch - rate) <= ALIKE * rate
        elif epoch and alike:
            step = max(step, min(round(rate * epoch), self.bars.total or step))
        return step

    def of_evaluation(self) -> int:
        """The step of an evaluation: that of the record before."""
        begins = self.bars.restarted
        shown = self.bars.skip_record()
        if begins:
            self._begin()
            self.last = shown or 0
        return self.last

    def end(self) -> None:
        """The training is over, as its last record says: another record is another training's."""
        self.bars.skip_record()
        self._over = True

    def _begin(self) -> None:
        self.last, self._first, self._over, self.leads = 0, None, False, False
        self._gaps.clear()
        self._counters = {}
        self._moved = 0, 0.0, False
        self.bars.begin()

    def _expected(self) -> int | None:
        """The next step, if the last two gaps were alike."""
        if len(self._gaps) < 2 or self._gaps[0] != self._gaps[1]:
            return None
        return self.last + self._gaps[1]


_TEXTS = frozenset({PROGRESS, "percentage", "elapsed_time", "remaining_time"})
_MEASURED = ("loss", "reward", "objective/kl")
_PROGRESS = re.compile(r"(\d{1,15})/(\d{1,15})")
_MAY_MATTER = re.compile(rb"otal (?:optimization )?steps = |logging_steps|max_steps|" + HINTS)
_TOTAL = re.compile(rb"Total (?:optimization )?steps = (\d[\d,]{0,18})\b")
_MAX_STEPS = re.compile(rb"(?:^\s*|[\s{(,])['\"]?max_steps['\"]?(?:=|: ?)([1-9]\d{0,14})\b(?!\.)")
_EVERY = re.compile(rb"logging_steps['\"]?(?:[= ]|: ?)([1-9]\d{0,8})\b(?!\.)")


class TrlConsole(Source):
    """The console output of transformers 4 and 5."""

    name = "trl_console"
    framework = "trl"

    def __init__(self, mapped: Mapped = NONE_MAPPED) -> None:
        super().__init__(mapped)
        self._steps = Steps()
        self._dicts = Dicts()
        self._total: int | None = None
        self._finished = False
        self._waiting: Values | None = None  # A record whose bar will show its step
        self._shown = 0  # The step that its bar showed, where the next record will tell whether that counts
        self._last: Values | None = None
        self._copies = self._ranks = 0  # Of the last record so far, and of each
        self._unfinished = b""
        """What was read of the last line, where it may go on: then it comes again as a whole."""

    def recognises(self, line: bytes) -> bool:
        if b"{'" not in line or b"'epoch':" not in line:
            return False
        source = TrlConsole()
        found = any(isinstance(event, Record) for event in source.parse(line))
        return found or source._waiting is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        known = len(self._unfinished) if line.startswith(self._unfinished) else 0
        if known:
            self._steps.bars.continue_line()
        whole, mark, last = line.rpartition(b"\r")
        # up to the last carriage return, if only the first part of a bar stands behind that
        whole = whole + mark if mark and is_torn(last.decode("utf-8", "replace")) else line
        self._unfinished = whole if (yield from self._printed(whole[known:])) or whole != line else b""
        if _MAY_MATTER.search(line):
            if every := _EVERY.search(line):
                self._steps.every = int(every[1])
            if total := _TOTAL.search(line) or _of_trainer(line):
                steps = int(total[1].replace(b",", b""))  # Transformers groups the digits
                self._steps.bars.declare(steps)
                yield from self._new_total(steps)
            if ended := ending(line):
                yield ended

    def _printed(self, line: bytes) -> Generator[Event, None, bool]:
        """Read the rest of a line; returns whether more may follow in it."""
        bars, found, text = self._steps.bars, list(drawn(line)), ""
        for index, (piece, depth) in enumerate(found, 1):
            text = bars.see(piece, depth)
            if bars.cut_off:  # and so is the record whose first half stood there
                self._dicts = Dicts()
            if not bars.redrawing:
                yield from self._waited()
            if not text.strip():
                continue
            dicts = [values for before, values in self._dicts.parse(text) if _is_alone(before)]
            logged = [values for values in dicts if _is_logged(values)]
            for values in logged:
                yield from self._logged(values)
            # text before the end of a line may be what a collector of logs put there
            if index == len(found) and not logged and not self._dicts.is_open:
                yield from self._waited()
                bars.other_text()
        bars.end_of_line()
        return not text.strip() or self._dicts.is_open

    def _is_copy(self, values: Values) -> bool:
        """Whether another rank prints the last record again: no two steps have one gradient."""
        if values != self._last:
            self._last, self._copies = values, 0
            return False
        self._copies += 1
        if isfinite(number(values.get("grad_norm")) or nan):  # neither 0 nor NaN
            self._ranks = max(self._ranks, self._copies)
        if self._copies <= self._ranks:
            return True
        self._copies = 0
        return False

    def _logged(self, values: Values) -> Iterator[Event]:
        if self._is_copy(values):
            return
        yield from self._waited(values)
        if "train_runtime" in values:
            self._finished = True
            self._steps.end()
        elif not any(key in values for key in _MEASURED):
            yield from self._record(values, evaluation=True)
        elif PROGRESS not in values and self._steps.in_doubt:
            self._waiting, self._finished = values, False
        elif PROGRESS not in values and (shown := self._steps.shown(values)):
            self._waiting, self._shown, self._finished = values, shown, False
        else:
            self._finished = False
            yield from self._record(values, evaluation=False)
        if self._finished:  # an evaluation after the end is not a sign of life
            yield Ended("finished")

    def flush(self) -> Iterator[Event]:
        if self._shown:
            yield from self._waited(self._waiting)

    def _waited(self, following: Values | None = None) -> Iterator[Event]:
        """The record that waits, if there is one: its bar was drawn again, or will not be.

        If the bar did not move before the ``following`` record, while the epoch rose by as much as before the
        first, both are counted.
        """
        bars, shown = self._steps.bars, self._shown
        moved = bars.position > shown
        if self._waiting is None or (shown and not (moved or following)):
            return
        values, self._waiting, self._shown = self._waiting, None, 0
        now, bars.position = bars.position, shown or bars.position
        if shown and following and not moved:
            first, second = (number(each.get("epoch") or "") or 0.0 for each in (values, following))
            self._steps.leads = 0 < 1.5 * first <= second <= 2.5 * first
        yield from self._record(values, evaluation=False)
        bars.position = now if shown else bars.position

    def _record(self, values: Values, *, evaluation: bool) -> Iterator[Event]:
        if progress := _PROGRESS.fullmatch(values.get(PROGRESS) or ""):
            step, total = int(progress[1]), int(progress[2])
            self._steps.last = step
        else:
            step = self._steps.of_evaluation() if evaluation else self._steps.of_training(values)
            total = (self._steps.bars.certain and self._steps.bars.total) or 0
        yield from self._new_total(total)
        yield Record(step, values)

    def _new_total(self, total: int) -> Iterator[Event]:
        if total and total != self._total:
            self._total = total
            yield TotalSteps(total)


def _of_trainer(line: bytes) -> re.Match[bytes] | None:
    """``max_steps`` of the trainer's settings: agents' environments have one of their own."""
    found = _MAX_STEPS.search(line)
    return found if found and (b"logging_steps" in line or line.strip(b" ,") == found[0].strip()) else None


def _is_alone(before: str) -> bool:
    """A dict in a list, in an assignment or behind a word and a colon is another program's print."""
    return not before.rstrip().endswith((":", "=", ",", "[", "(", "{"))


def _is_logged(values: Values) -> bool:
    """Trainers log numbers with their epoch; their history, which has the step, is not new."""
    if "epoch" not in values or "step" in values:
        return False
    if not any(key in (*_MEASURED, "train_runtime") or key.startswith("eval_") for key in values):
        return False
    return all(number(value) is not None for key, value in values.items() if key not in _TEXTS)
