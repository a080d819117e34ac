"""slime's log lines: ``[2026-08-21 10:11:12] model.py:918 - step 11: {'train/loss': -0.002, ...}``.

Each part of the trainer logs its own lines. Their time is that of the trainer's machine without its
zone, which need not be ours: it is not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.signals.record import Event, Record
from exporter.runs.sources.endings import ending
from exporter.runs.sources.python_dict import Dicts, Values
from exporter.runs.sources.servers import servers
from exporter.runs.sources.terminal import pieces
from exporter.runs.sources.whole import Whole

_KINDS = "rollout|step|perf|eval|critic-step"
_KEYS = ("rollout/", "train/", "perf/", "eval/")
_LINE = re.compile(rf"(?:^\s*|- )({_KINDS}) (\d{{1,15}}): $")
_RECORD = re.compile(rf"(?:^|- |[)m\r] ?)(?:{_KINDS}) \d{{1,15}}: \{{'(?:rollout|train|perf|eval)/".encode())

OPTIMIZER = ("step", "critic-step")
"""Lines that count the steps of an optimizer."""


class Slime(Whole):
    """slime's console output. The step of the run is the rollout's number, which starts at 0."""

    name = "slime_console"
    framework = "slime"

    def __init__(self) -> None:
        self._dicts = Dicts()
        self._rollout: int | None = None

    @staticmethod
    def recognises(line: bytes) -> bool:
        return b": {'" in line and _RECORD.search(line) is not None

    def read(self, line: bytes) -> Iterator[Event]:
        for piece in pieces(line):
            for before, values in self._dicts.read(piece):
                found = _LINE.search(before)
                if found and any(key.startswith(_KEYS) for key in values):
                    yield self._record(found[1], int(found[2]), values)
        if mention := servers(line):
            yield mention
        if ended := ending(line):
            yield ended

    def _record(self, kind: str, step: int, values: Values) -> Record:
        if kind == "rollout":
            self._rollout = step
        elif kind in OPTIMIZER and self._rollout is not None:
            step = min(step, self._rollout)  # several steps of the optimizer make one rollout
        return Record(step, values, stream=_stream(kind, values))


def _stream(kind: str, values: Values) -> str:
    """Two processes log ``perf`` lines, and one may be a rollout ahead: they are distinguished by keys."""
    if kind == "perf" and any(key.startswith(("rollout/", "perf/rollout")) for key in values):
        return "perf of rollout"
    return kind
