"""Steps as tqdm's bars show them.

A trainer writes a record above its bar: tqdm clears its bars, prints the record, and draws the bars
again. Bars and records reach the log on two paths (stderr at once, stdout when its buffer is full), so
that a record may come hundreds of steps after its bar. Each time the bars were cleared marks the step
of one record, in the order of the records.

The step is what the bar shows when it is drawn again. What it showed before may be old: tqdm draws at
most ten times a second, and after a jump (``update(100)``, with which a resume begins) only every so
many steps.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_WAITING = 100_000  # Records that may wait in a buffer of the trainer
MOST_BARS = 16  # Bars that are remembered: a trainer has a few, a log that repeats may have any number
TOGETHER = 3
"""How many steps in a row a bar must move along with to be the training's; others meet the step by chance."""
_BAR = re.compile(r"\s*\d{1,3}%\|[^|]*\|\s*(\d{1,15})/(\d{1,15}) \[([^\]]*)\]")
_TORN = re.compile(r"\s*\d{1,3}(?:%(?:\|.*)?)?", re.DOTALL)
_JUST_STARTED = "00:00<?"


def is_torn(piece: str) -> bool:
    """Whether it is the first part of a bar only."""
    return _TORN.fullmatch(piece) is not None and not _BAR.match(piece)


@dataclass(slots=True)
class MovingBar:
    """What a bar shows, what it showed at the last step, for how many steps it moved along."""

    position: int = 0
    drawn: bool = False
    before: int = -1
    together: int = 0

    def step(self, step: int) -> None:
        """Compare what was drawn since the last step with the step that is logged now."""
        if self.drawn:
            moves = self.before < self.position and step - 1 <= self.position <= step
            self.together = self.together + 1 if moves else 0
            self.before, self.drawn = self.position, False


class MovingBars:
    """The bars of a log by their totals."""

    def __init__(self) -> None:
        self._bars: dict[int, MovingBar] = {}

    def draw(self, position: int, total: int) -> None:
        """A bar was drawn."""
        bar = self._bars[total] = self._bars.pop(total, MovingBar())  # the one drawn last stands last
        bar.position, bar.drawn = position, True
        if len(self._bars) > MOST_BARS:
            del self._bars[next(iter(self._bars))]

    def step(self, step: int) -> list[int]:
        """Compare all bars with the step that is logged now; returns the totals of those that move along."""
        for bar in self._bars.values():
            bar.step(step)
        return [total for total, bar in self._bars.items() if bar.together >= TOGETHER]


class Bar(NamedTuple):
    """A bar: how many lines below the first one it is drawn (it keeps its line), its total, its number."""

    depth: int
    total: int
    start: int


@dataclass(slots=True, eq=False)
class Mark:
    """The bars were cleared once; steps by bar ``before`` and ``after``.

    ``direct``: with the record between.
    """

    before: dict[Bar, int] = field(default_factory=dict)
    after: dict[Bar, int] = field(default_factory=dict)
    direct: bool = False

    def step(self, bar: Bar) -> int:
        """The step that the bar marks, as far as it is known."""
        return self.after.get(bar, self.before[bar])


class ProgressBars:
    """The nameless bars of one log. Which of them counts training steps shows when a record comes.

    ``total`` is that bar's number of steps, as far as can be seen; ``certain``: records bore it out, which
    cleared the bar or with which it moves along. ``position`` is the step it showed last. ``cut_off``: what
    was seen last is the first bar of another trainer, while that of the one before was not closed: it was
    killed.
    """

    def __init__(self) -> None:
        self.total: int | None = None
        self.certain = False
        self.position = 0
        self.cut_off = False
        self._declared: int | None = None
        self._bar: Bar | None = None
        self._moving = MovingBars()
        self._marks: deque[Mark] = deque(maxlen=MOST_WAITING)
        self._cleared: Mark | None = None
        self._used: Mark | None = None
        self._shown: dict[int, tuple[Bar, int]] = {}
        self._starts: dict[tuple[int, int], int] = {}
        self._last: int | None = None  # where the bar was drawn that nothing was written behind yet
        self._ended: int | None = None  # the same at the last end of a line
        self._closed: set[int] = set()
        self._records = False
        self._restarted = False

    def declare(self, total: int) -> None:
        """Set how many steps the training will have, as the log says."""
        self._declared = total

    def see(self, piece: str, depth: int = 0) -> str:
        """Read a bar, drawn a number of lines below the first; return the text after it."""
        self._last, self.cut_off = None, False
        if found := _BAR.match(piece):
            self._draw(depth, int(found[2]), int(found[1]), just_started=_JUST_STARTED in found[3])
            if found.end() < len(piece):
                self._last = None
            return piece[found.end() :]
        if piece.isspace():
            self._reopen(depth)
            if shown := self._shown.pop(depth, None):
                mark = self._cleared
                if mark is None or mark.after or not self._waits(mark):
                    mark = self._cleared = Mark()
                    self._marks.append(mark)
                mark.before[shown[0]] = shown[1]
        return piece

    def end_of_line(self) -> None:
        """A line ends: where a bar is the last in it, that was closed, unless one below it follows."""
        if self._last is not None:
            self._closed.add(self._last)
        self._ended, self._last = self._last, None

    def continue_line(self) -> None:
        """The line that seemed to end goes on: what stood last in it may not have been closed."""
        if self._ended is not None:
            self._closed.discard(self._ended)
        self._last = self._ended

    def _draw(self, depth: int, total: int, step: int, *, just_started: bool) -> None:
        bar, mark = Bar(depth, total, self._starts.get((depth, total), 0)), self._cleared
        if mark and bar not in mark.after and step >= mark.before.get(bar, step + 1):
            mark.after[bar] = step
        else:
            # a bar that was cleared and is not drawn again has been closed: no record was written there
            self._cleared = None
            if mark and not mark.after and self._waits(mark):
                self._marks.pop()
            if just_started and step == 0:
                bar = self._begun(depth, total)
        self._reopen(depth)
        self._moving.draw(step, total)
        self._shown[depth], self._last = (bar, step), depth
        if self._is_training(bar):
            self.position = step

    def _reopen(self, depth: int) -> None:
        """A bar was drawn or cleared, so that neither it nor one above it has been closed."""
        self._closed = {closed for closed in self._closed if closed > depth}

    def _waits(self, mark: Mark) -> bool:
        return bool(self._marks) and self._marks[-1] is mark

    def _begun(self, depth: int, total: int) -> Bar:
        """A bar was first drawn; if the one before was not closed, its trainer was killed with its buffer."""
        if len(self._starts) == MOST_BARS:
            self._starts.clear()
        before = Bar(depth, total, self._starts.get((depth, total), 0))
        self._starts[depth, total] = before.start + 1
        if depth not in self._closed:
            self.cut_off = depth == 0
            others = (mark for mark in self._marks if min(mark.before).depth != depth)
            self._marks = deque(others, maxlen=MOST_WAITING)
        if self._is_training(before) and self._records and not self._marks:
            self._restarted, self._records = True, False
        return before._replace(start=before.start + 1)

    def other_text(self) -> None:
        """Text came that is not a record. Where it stands at cleared bars, they were cleared for it."""
        if self._marks and self.redrawing:
            self._marks.pop()

    @property
    def redrawing(self) -> bool:
        """Whether the text that comes now stands where the bars were cleared, and not drawn again yet."""
        mark = self._cleared
        return mark is not None and not mark.after and len(self._marks) == 1 and self._waits(mark)

    def in_doubt(self, expected: int | None) -> bool:
        """Whether the next record must wait until its bar is drawn again, not at the ``expected`` step."""
        if not self.redrawing:
            return False
        mark = self._marks[0]
        mark.direct = True
        return mark.before[self._training(mark)] != expected

    @property
    def marked(self) -> bool:
        """Whether the bar was cleared for a record."""
        return bool(self._bar or self._marks)

    @property
    def restarted(self) -> bool:
        """Whether the next record is the first of another training, as its bar shows."""
        return self._restarted or bool(self._bar and self._marks and self._bar not in self._marks[0].before)

    def begin(self) -> None:
        """Begin another training, which may have another bar."""
        if self._bar is not None and not self.restarted:
            bar = self._bar
            others = (mark for mark in self._marks if mark.direct or bar not in mark.before)
            self._marks = deque(others, maxlen=MOST_WAITING)
        self.total = self._bar = self._used = None
        self._moving = MovingBars()
        self.certain = self._restarted = False
        self.position = 0

    def last_step(self) -> int:
        """The step of the last record by the bar that was drawn again behind it; 0 if unknown."""
        return self._used.after.get(self._bar, 0) if self._used and self._bar else 0

    def step_of_record(self, after: int, expected: int | None) -> int | None:
        """The step at which the next training record was written, if a bar shows it; later than ``after``.

        Logs lose lines. Where steps were regular so far and the next mark lies beyond the ``expected``
        step, the mark is a later record's: unless the record stands right where the bar was cleared.
        """
        self.choose()
        self._records = True
        bar = self._bar
        while bar and self._marks:
            mark = self._marks[0]
            step = mark.step(bar) if bar in mark.before else 0
            if step > after and not (expected is None or step <= expected or mark.direct):
                break
            self._marks.popleft()
            if step > after or mark.direct:
                self._used = mark
                return step if step > after else None
        return None

    def logged(self, step: int) -> None:
        """A training record was written at a step."""
        self.certain = self.certain or self.total in self._moving.step(step)

    def skip_record(self) -> int | None:
        """Handle a record that is not of the training; returns the step that its bar showed."""
        mark = self._marks.popleft() if self._marks else None
        return mark.step(self._training(mark)) if mark else None

    def choose(self) -> None:
        """Find the training's bar: that of the next mark, the declared one, or the one drawn last."""
        if self._bar is None and self._marks:
            self._bar = self._training(self._marks[0])
            self.total, self.certain = self._bar[1], True
        elif self.total is None or not (
            self.certain or any(self._is_training(bar) for bar, _ in self._shown.values())
        ):
            going = [bar[1] for bar, step in self._shown.values() if step < bar[1]]
            self.total, self.certain = self._declared or next(iter(going), None), self._declared is not None
        else:
            return
        self._declared = None
        self.position = max((step for bar, step in self._shown.values() if self._is_training(bar)), default=0)

    def _is_training(self, bar: Bar) -> bool:
        """Whether the bar counts training steps, as far as is known."""
        return bar[1] == self.total and self._bar in (None, bar)

    def _training(self, mark: Mark) -> Bar:
        """Which cleared bar counts steps: the one so far, the declared, the most redrawn, the longest."""
        if self._bar in mark.before:
            return self._bar
        redrawn = Counter(bar for each in self._marks for bar in each.after)
        bars = mark.after or mark.before  # one that was closed is not drawn again
        return max(bars, key=lambda bar: (bar[1] == self._declared, redrawn[bar], bar[1]))
