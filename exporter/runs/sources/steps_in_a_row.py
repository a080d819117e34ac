"""Steps with digits too many.

Logs are made of other logs, by patterns that look for a step and its numbers. Where several writers
mixed their digits there, 65 is read as 656: one step, far ahead, between 64 and 66.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from exporter.runs.signals.record import Record


class StepsInARow:
    """Hands on the records of one log. One that may have such a step waits for the next, which tells.

    It may where the steps came at equal distances so far, and its step begins with the digits of the
    one that should come.
    """

    def __init__(self) -> None:
        self._last = self._before = -1
        self._waiting: Record | None = None

    def records(self, record: Record) -> Iterator[Record]:
        """The records that can be handed on with this one."""
        expected = 2 * self._last - self._before
        if waiting := self._waiting:
            self._waiting = None
            if self._last < record.step < waiting.step:
                waiting = replace(waiting, step=expected)
            yield self._passed(waiting)
        elif self._before >= 0 and expected < record.step and str(record.step).startswith(str(expected)):
            self._waiting = record
            return
        yield self._passed(record)

    def _passed(self, record: Record) -> Record:
        if record.step != self._last:
            self._before, self._last = self._last, record.step
        return record
