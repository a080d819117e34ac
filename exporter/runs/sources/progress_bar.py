"""Steps as tqdm's bars tell them.

A trainer writes a record above its bar: tqdm clears the bar, prints the record, and draws the bar
again. Bar and record reach the log by two ways (stderr at once, stdout when its buffer is full),
so that a record may come hundreds of steps after its bar. The cleared bar stays: each one marks the
step of one record, in the order of the records.
"""

from __future__ import annotations

import re
from collections import deque

MOST_WAITING = 100_000
"""Records that may wait in a buffer of the trainer."""

MOST_BARS = 16
"""Bars whose marks are kept: a trainer has a few, a log that repeats may have any number."""

_BAR = re.compile(r"\s*\d{1,3}%\|[^|]*\|\s*(\d{1,15})/(\d{1,15}) \[([^\]]*)\]")
_JUST_STARTED = "00:00<?"


class ProgressBars:
    """The nameless bars of one log. Which of them counts training steps shows when a record comes.

    ``total`` is that bar's number of steps, as soon as it is known; ``position`` the step it showed
    last. ``restarted``: it began anew since the last record.
    """

    def __init__(self) -> None:
        self.total: int | None = None
        self.position = 0
        self.restarted = False
        self._declared: int | None = None
        self._marks: dict[int, deque[int]] = {}
        self._drawn: tuple[int, int] | None = None
        self._unexplained: deque[int] | None = None
        self._records = False

    def declare(self, total: int) -> None:
        """The log says how many steps the training will have."""
        self._declared = total

    def see(self, piece: str) -> str:
        """Take note of a bar; returns what stands behind it."""
        if bar := _BAR.match(piece):
            self._draw(int(bar[1]), int(bar[2]), just_started=_JUST_STARTED in bar[3])
            return piece[bar.end() :]
        if piece.isspace() and self._drawn:
            self._mark(*self._drawn)
        return piece

    def _draw(self, step: int, total: int, *, just_started: bool) -> None:
        self._drawn, self._unexplained = (step, total), None
        if total != self.total:
            return
        self.position = step
        if just_started and step == 0 and self._records:
            self.restarted, self._records = True, False
            self._marks.pop(total, None)

    def _mark(self, step: int, total: int) -> None:
        if total not in self._marks and len(self._marks) == MOST_BARS:
            del self._marks[next(iter(self._marks))]
        self._unexplained = self._marks.setdefault(total, deque(maxlen=MOST_WAITING))
        self._unexplained.append(step)
        self._drawn = None

    def other_text(self) -> None:
        """Text came that is no record. If it stands where a bar was cleared, it was cleared for that."""
        if self._unexplained:
            self._unexplained.pop()
        self._unexplained = None

    def begin(self) -> None:
        """Another training begins: it may have another bar."""
        if self.total is not None and not self.restarted:
            self._marks.pop(self.total, None)
        self.total, self.position, self.restarted = None, 0, False

    def step_of_record(self, after: int, expected: int | None) -> int | None:
        """The step at which the next training record was written, if a bar tells; later than ``after``.

        Logs lose lines. Where steps were regular so far and the next mark lies beyond the ``expected``
        step, the mark is a later record's: unless nothing but this record can have left it.
        """
        self._choose()
        marks = self._marks.get(self.total or 0, deque())
        at_once = self._unexplained is marks and len(marks) == 1
        self._marks = {self.total: marks} if self.total else {}
        self._unexplained, self._records = None, True
        while marks and marks[0] <= after:
            marks.popleft()
        if marks and (expected is None or marks[0] <= expected or at_once):
            return marks.popleft()
        return None

    def skip_record(self) -> None:
        """A record came that is none of the training's."""
        marks = self._marks.get(self.total or 0)
        if marks:
            marks.popleft()
        self._unexplained = None

    def _choose(self) -> None:
        """Find the training's bar: the one declared, the one cleared most often, or the one drawn last."""
        if self.total is not None:
            return
        if self._marks and self._declared not in self._marks:
            self.total = max(self._marks, key=lambda total: (len(self._marks[total]), total))
        elif self._declared is not None:
            self.total = self._declared
        elif self._drawn and self._drawn[0] < self._drawn[1]:
            self.total = self._drawn[1]
        if self._drawn and self._drawn[1] == self.total:
            self.position = self._drawn[0]
        self._declared = None
