"""SkyRL's ``console`` logger: ``Step 12:``, and a dict below it, printed over many lines.

A line ``... | INFO | skyrl.train.utils.tracking:log:201 - Step 12:`` ends the head; floats follow as texts
of four decimals. Source: ``skyrl/train/utils/tracking.py`` (``ConsoleLogger``) and ``skyrl/train/trainer.py``
of 2026-10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.signals.numbers import number
from exporter.runs.signals.record import Ended, Event, Record, TotalSteps
from exporter.runs.sources.endings import ending
from exporter.runs.sources.python_dict import Dicts
from exporter.runs.sources.terminal import pieces
from exporter.runs.sources.whole import Whole

_HEAD = re.compile(r"tracking:log:\d+ - Step (\d{1,15}):\s*$")
_BAR = re.compile(rb"Training (?:Batches|Steps) Processed:\s*\d{1,3}%\|[^|]*\|\s*\d{1,15}/(\d{1,15}) ")
_DONE = " - Training done!"


class SkyRl(Whole):
    """SkyRL's console output. Its bar tells the total; its last line, the end."""

    name = "skyrl_console"
    framework = ""

    def __init__(self) -> None:
        self._dicts = Dicts()
        self._step: int | None = None
        self._total: int | None = None

    @staticmethod
    def recognises(line: bytes) -> bool:
        return b"tracking" in line and any(map(_HEAD.search, pieces(line)))

    def read(self, line: bytes) -> Iterator[Event]:
        if (bar := _BAR.search(line)) and int(bar[1]) != self._total:
            self._total = int(bar[1])
            yield TotalSteps(self._total)
        for piece in pieces(line):
            yield from self._piece(piece)
        if ended := ending(line):
            yield ended

    def _piece(self, piece: str) -> Iterator[Event]:
        if head := _HEAD.search(piece):
            self._step, self._dicts = int(head[1]), Dicts()
            return
        for before, values in self._dicts.read(piece):
            if self._step is not None and not before.strip() and any(map(_is_number, values.values())):
                yield Record(self._step, values)
            self._step = None
        if self._step is not None and not self._dicts.is_open:
            self._step = None  # no dict followed: someone else's line
        if piece.endswith(_DONE):
            yield Ended("finished")


def _is_number(text: str | None) -> bool:
    return number(text) is not None
