"""AReaL's log: a line with the step, and a table of its statistics, drawn in boxes.

``Epoch 1/5 Step 12/100 Train step 12/500 done.``, then rows of several keys and values each:
``│ ppo_actor/task_reward/avg │ 5.3125e-01 │ timeperf/rollout │ 5.5200e+01 │``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.signals.record import Event, Record, TotalSteps, number
from exporter.runs.sources.base import Source
from exporter.runs.sources.console import ending, pieces

MOST_KEYS = 5000
"""No trainer has more in a step: what comes then is not a table."""

_WALL = "│"
_BOTTOM = re.compile("[╘└╰][═─]")
_HEADER = re.compile(r"Epoch \d+/\d+ Step \d+/\d+ Train step (\d{1,15})/(\d{1,15}) done")
_RECORD = re.compile(_HEADER.pattern.encode())


class Areal(Source):
    """AReaL's console output and its log files. Steps are counted from 1 there."""

    name = "areal_console"
    framework = "areal"

    def __init__(self) -> None:
        self._step: int | None = None
        self._values: dict[str, str] = {}

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        return _RECORD.search(line) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        for piece in pieces(line):
            if _WALL in piece:
                # a row that was cut has no wall at its end, and its last cell is not trusted
                cells = [cell.strip() for cell in piece.split(_WALL)[1:-1]]
                for key, value in zip(cells[::2], cells[1::2], strict=False):
                    if key and number(value) is not None and len(self._values) < MOST_KEYS:
                        self._values[key] = value
            elif header := _HEADER.search(piece):
                yield from self.flush()
                self._step = int(header[1])
                yield TotalSteps(int(header[2]))
            elif _BOTTOM.search(piece):  # a collector of logs may have put its time before the line
                yield from self.flush()
        if ended := ending(line):
            yield ended

    def flush(self) -> Iterator[Event]:
        """What the table of the step holds so far."""
        if self._step is not None and self._values:
            yield Record(self._step, self._values)
        self._values = {}
