"""An operator's marks: after an intended change of level, a run is re-baselined from its next step on.

A mark is known by its place in the run, not in the file: a log that is read again from its beginning
passes the same places, and one that was emptied never passes them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

MOST = 5
"""Marks of a run that are remembered. Only the last one decides; the others are there to be seen."""

Place = tuple[int, int]
"""How often the run had been started again, and the last step since."""


class Mark(NamedTuple):
    """A mark behind a step of an attempt, made at a time (seconds since the epoch), with a note."""

    attempt: int
    step: int
    time: float
    note: str

    @property
    def place(self) -> Place:
        """The place after which levels are re-baselined."""
        return self.attempt, self.step


class Marks:
    """The last marks of one run, oldest first; notes are unique, since they distinguish marks."""

    def __init__(self, saved: Iterable[Iterable[Any]] = ()) -> None:
        self.all = [Mark(*mark) for mark in saved]

    def add(self, mark: Mark) -> None:
        """Remember a mark; one with the same note gives way."""
        others = [other for other in self.all if other.note != mark.note]
        self.all = [*others, mark][-MOST:]

    def passed(self, before: Place, after: Place) -> bool:
        """Whether the way from one place of the run to the next leads past a mark."""
        return any(before <= mark.place < after for mark in self.all)

    def forget(self, before: int) -> None:
        """The run began from scratch with this attempt: marks of earlier ones mean nothing any more."""
        self.all = [mark for mark in self.all if mark.attempt >= before]

    def snapshot(self) -> list[list[Any]]:
        """All marks, as plain JSON values."""
        return [list(mark) for mark in self.all]
