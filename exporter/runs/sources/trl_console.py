"""What a Hugging Face trainer prints: ``{'loss': 0.02, 'reward': 0.5, ..., 'epoch': 0.02}``.

TRL and what is built on it (Unsloth, ms-swift). transformers 4 prints numbers, 5 prints texts with
four digits. The dict stands alone in its line but for tqdm's bars, and does not hold its step.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterator

from exporter.runs.signals.axes import PROGRESS
from exporter.runs.signals.numbers import number
from exporter.runs.signals.record import Ended, Event, Record, TotalSteps
from exporter.runs.sources.endings import HINTS, ending
from exporter.runs.sources.progress_bar import ProgressBars, is_torn
from exporter.runs.sources.python_dict import Dicts, Values
from exporter.runs.sources.terminal import drawn
from exporter.runs.sources.whole import Whole

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


_TEXTS = frozenset({PROGRESS, "percentage", "elapsed_time", "remaining_time"})
_MEASURED = ("loss", "reward", "objective/kl")
_PROGRESS = re.compile(r"(\d{1,15})/(\d{1,15})")
_WORTH_A_LOOK = re.compile(rb"otal (?:optimization )?steps = |logging_steps|max_steps|" + HINTS)
_TOTAL = re.compile(rb"Total (?:optimization )?steps = (\d[\d,]{0,18})\b")
_MAX_STEPS = re.compile(rb"(?:^\s*|[\s{(,])['\"]?max_steps['\"]?(?:=|: ?)([1-9]\d{0,14})\b(?!\.)")
_EVERY = re.compile(rb"logging_steps['\"]?(?:[= ]|: ?)([1-9]\d{0,8})\b(?!\.)")


class TrlConsole(Whole):
    """The console output of transformers 4 and 5."""

    name = "trl_console"
    framework = "trl"

    def __init__(self) -> None:
        self._steps = Steps()
        self._dicts = Dicts()
        self._total: int | None = None
        self._finished = False
        self._waiting: Values | None = None
        """A record whose bar is to tell its step."""
        self._unfinished = b""
        """What was read of the last line, where it may go on: then it comes again as a whole."""

    @staticmethod
    def recognises(line: bytes) -> bool:
        if b"{'" not in line or b"'epoch':" not in line:
            return False
        source = TrlConsole()
        found = any(isinstance(event, Record) for event in source.read(line))
        return found or source._waiting is not None

    def read(self, line: bytes) -> Iterator[Event]:
        known = len(self._unfinished) if line.startswith(self._unfinished) else 0
        if known:
            self._steps.bars.continue_line()
        whole = _without_torn_bar(line)
        self._unfinished = whole if (yield from self._printed(whole[known:])) or whole != line else b""
        if _WORTH_A_LOOK.search(line):
            yield from self._said(line)

    def _printed(self, line: bytes) -> Generator[Event, None, bool]:
        """What stands in a line, or behind what was read of it; returns whether more may follow there."""
        bars, found, text = self._steps.bars, list(drawn(line)), ""
        for index, (piece, depth) in enumerate(found, 1):
            text = bars.see(piece, depth)
            if bars.cut_off:  # and so is the record whose first half stood there
                self._dicts = Dicts()
            if not bars.redrawing:
                yield from self._waited()
            if text.strip():
                yield from self._text(text, last=index == len(found))
        bars.end_of_line()
        return not text.strip() or self._dicts.is_open

    def _text(self, text: str, *, last: bool) -> Iterator[Event]:
        """``last``: nothing is behind it in its line; else it may be what a collector of logs put before."""
        found = [values for before, values in self._dicts.read(text) if _is_alone(before)]
        logged = [values for values in found if _is_logged(values)]
        for values in logged:
            yield from self._logged(values)
        if last and not logged and not self._dicts.is_open:
            yield from self._waited()
            self._steps.bars.other_text()

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
        if self._finished:  # an evaluation after the end is no sign of life
            yield Ended("finished")

    def _waited(self) -> Iterator[Event]:
        """The record that waits, if there is one: its bar was drawn again, or will not be."""
        if self._waiting is not None:
            values, self._waiting = self._waiting, None
            yield from self._record(values, evaluation=False)

    def _record(self, values: Values, *, evaluation: bool) -> Iterator[Event]:
        progress = _PROGRESS.fullmatch(values.get(PROGRESS) or "")
        if progress:
            step, total = self._steps.logged(int(progress[1])), int(progress[2])
        else:
            step = self._steps.of_evaluation() if evaluation else self._steps.of_training(values)
            total = self._steps.bars.total or 0
        yield from self._of(total)
        yield Record(step, values)

    def _of(self, total: int) -> Iterator[Event]:
        if total and total != self._total:
            self._total = total
            yield TotalSteps(total)

    def _said(self, line: bytes) -> Iterator[Event]:
        if every := _EVERY.search(line):
            self._steps.every = int(every[1])
        if total := _TOTAL.search(line) or _of_trainer(line):
            steps = int(total[1].replace(b",", b""))  # Transformers groups the digits
            self._steps.bars.declare(steps)
            yield from self._of(steps)
        if ended := ending(line):
            yield ended


def _without_torn_bar(line: bytes) -> bytes:
    """The line up to its last carriage return, if only the first part of a bar stands behind that."""
    before, mark, last = line.rpartition(b"\r")
    return before + mark if mark and is_torn(last.decode("utf-8", "replace")) else line


def _of_trainer(line: bytes) -> re.Match[bytes] | None:
    """``max_steps`` of the trainer's settings: agents' environments have one of their own."""
    found = _MAX_STEPS.search(line)
    return found if found and (b"logging_steps" in line or line.strip(b" ,") == found[0].strip()) else None


def _is_alone(before: str) -> bool:
    """A dict in a list, in an assignment or behind a word and a colon is someone's print."""
    before = before.rstrip()
    return not before.endswith((":", "=", ",", "[", "(", "{")) or before.endswith("]:")


def _is_logged(values: Values) -> bool:
    """Trainers log numbers with their epoch; their history, which has the step, is no news."""
    if "epoch" not in values or "step" in values or not _is_measured(values):
        return False
    return all(number(value) is not None for key, value in values.items() if key not in _TEXTS)


def _is_measured(values: Values) -> bool:
    return any(key in _MEASURED or key == "train_runtime" or key.startswith("eval_") for key in values)
