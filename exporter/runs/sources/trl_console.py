"""What a Hugging Face trainer prints: ``{'loss': 0.02, 'reward': 0.5, ..., 'epoch': 0.02}``.

TRL and what is built on it (Unsloth, ms-swift). transformers 4 prints numbers, 5 prints texts with
four digits. The dict stands alone in its line but for tqdm's bars, and does not hold its step.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterator

from exporter.runs.signals.record import PROGRESS, Ended, Event, Record, TotalSteps, number
from exporter.runs.sources.base import Source
from exporter.runs.sources.console import HINTS, Dicts, Values, drawn, ending
from exporter.runs.sources.progress_bar import ProgressBars, is_torn

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
        self._over = False

    @property
    def in_doubt(self) -> bool:
        """Whether the record that comes now must wait until its bar is drawn again and shows its step."""
        return self.bars.in_doubt(None if self.bars.restarted else self._expected())

    def of_training(self, values: Values) -> int:
        """The step of the next record of the training."""
        self.last = max(self.last, self.bars.last_step())
        found = {name: number(values[name]) for name in COUNTERS if name in values}
        counters = {name: value for name, value in found.items() if value is not None}
        fell = any(value < self._counters.get(name, value) for name, value in counters.items())
        if self._over or self.bars.restarted or fell:
            self._begin()
        self._counters |= counters
        step = self.bars.step_of_record(self.last, self._expected())
        if step is not None and self.last:
            self._gaps.append(step - self.last)
        elif step is not None:
            self._first = step
        elif self._first is None:  # a bar that never left a mark may be late, but is never ahead
            step = max(self.last + (self.every or 1), self.bars.position)
        else:
            step = self.last + (self.every or (self._gaps[-1] if self._gaps else self._first))
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

    def end(self) -> None:
        """The training is over, as its last record says: another record is another training's."""
        self.bars.skip_record()
        self._over = True

    def _begin(self) -> None:
        self.last, self._first, self._over = 0, None, False
        self._gaps.clear()
        self._counters = {}
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

    def __init__(self) -> None:
        self._steps = Steps()
        self._dicts = Dicts()
        self._total: int | None = None
        self._finished = False
        self._waiting: Values | None = None  # A record whose bar will show its step
        self._unfinished = b""
        """What was read of the last line, where it may go on: then it comes again as a whole."""

    @classmethod
    def recognises(cls, line: bytes) -> bool:
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

    def _logged(self, values: Values) -> Iterator[Event]:
        yield from self._waited()
        if "train_runtime" in values:
            self._finished = True
            self._steps.end()
        elif not any(key in values for key in _MEASURED):
            yield from self._record(values, evaluation=True)
        elif PROGRESS not in values and self._steps.in_doubt:
            self._waiting, self._finished = values, False
        else:
            self._finished = False
            yield from self._record(values, evaluation=False)
        if self._finished:  # an evaluation after the end is not a sign of life
            yield Ended("finished")

    def _waited(self) -> Iterator[Event]:
        """The record that waits, if there is one: its bar was drawn again, or will not be."""
        if self._waiting is not None:
            values, self._waiting = self._waiting, None
            yield from self._record(values, evaluation=False)

    def _record(self, values: Values, *, evaluation: bool) -> Iterator[Event]:
        if progress := _PROGRESS.fullmatch(values.get(PROGRESS) or ""):
            step, total = int(progress[1]), int(progress[2])
            self._steps.last = step
        else:
            step = self._steps.of_evaluation() if evaluation else self._steps.of_training(values)
            total = self._steps.bars.total or 0
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
