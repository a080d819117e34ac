"""W&B's transaction log, ``run-<id>.wandb``: what a trainer logged, exactly, and how it ended.

The file is a log in LevelDB's format; each record is a message. Those of the history hold the keys of
one ``wandb.log`` with their values in JSON, those of the console what was printed, the last one the
exit code. W&B writes 32 KiB at a time: steps come some minutes late, and a trainer that is killed
takes its last ones with it.

Source: ``wandb/proto/wandb_internal.proto`` of W&B 0.31.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from exporter.runs.signals.numbers import number
from exporter.runs.signals.record import Ended, Event, Record, TotalSteps
from exporter.runs.sources.endings import ending
from exporter.runs.sources.flat import FlatRecords, is_record
from exporter.runs.sources.protobuf import SIZED, VARINT, fields, key
from exporter.runs.sources.servers import servers
from exporter.runs.sources.whole import Whole

LONGEST_VALUE = 100
"""In bytes; what is longer is not a number."""

MOST_BARS = 16

_HISTORY, _CONSOLE, _EXIT = key(2, SIZED), key(13, SIZED), key(18, SIZED)
_ITEM = key(1, SIZED)
_KEY, _KEY_PART, _VALUE = key(1, SIZED), key(2, SIZED), key(16, SIZED)
_PRINTED = key(3, SIZED)
_EXIT_CODE = key(1, VARINT)
_BAR = re.compile(rb"\d{1,3}%\|[^|]*\|\s*(\d{1,15})/(\d{1,15}) \[")


class WandbFile(Whole):
    """The records of one file. The total of the steps is that of the progress bar that moves with them."""

    name = "wandb"
    framework = ""

    def __init__(self) -> None:
        self._records = FlatRecords()
        self._bars: dict[int, int] = {}
        self._total: int | None = None

    @staticmethod
    def recognises(record: bytes) -> bool:
        try:
            return any(is_record(_logged(found)) for kind, found in fields(record) if kind == _HISTORY)
        except ValueError:
            return False

    def read(self, record: bytes) -> Iterator[Event]:
        for kind, found in fields(record):
            if kind == _HISTORY:
                yield from self._history(found)
            elif kind == _CONSOLE:
                yield from self._printed(dict(fields(found)).get(_PRINTED, b""))
            elif kind == _EXIT:
                yield Ended("failed" if dict(fields(found)).get(_EXIT_CODE) else "finished")

    def _history(self, row: bytes) -> Iterator[Event]:
        for event in self._records.events(_logged(row)):
            if isinstance(event, Record):
                yield from self._new_total(event.step)
            yield event

    def _new_total(self, step: int) -> Iterator[Event]:
        totals = [total for total, position in self._bars.items() if step - 1 <= position <= step]
        if totals and self._total not in totals:
            self._total = max(totals)
            yield TotalSteps(self._total)

    def _printed(self, text: bytes) -> Iterator[Event]:
        for bar in _BAR.finditer(text):
            self._bars.pop(int(bar[2]), None)
            self._bars[int(bar[2])] = int(bar[1])
            if len(self._bars) > MOST_BARS:
                del self._bars[next(iter(self._bars))]
        if mention := servers(text):
            yield mention
        if ended := ending(text):
            yield ended


def _logged(row: bytes) -> dict[str, Any]:
    """Key -> number as it is written, of one call of ``wandb.log``. A key in others is ``outer/inner``."""
    logged: dict[str, Any] = {}
    for kind, item in fields(row):
        if kind == _ITEM:
            parts = list(fields(item))
            name = b"/".join(part for number_, part in parts if number_ in (_KEY, _KEY_PART))
            value = next((part for number_, part in parts if number_ == _VALUE), b"")
            text = value.decode("utf-8", "replace") if len(value) <= LONGEST_VALUE else ""
            if number(text) is not None:
                logged[name.decode("utf-8", "replace")] = text
    return logged
