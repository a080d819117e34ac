"""OpenRLHF's log lines: ``INFO 08-13 10:11:12 ppo_trainer.py:547] ✨ Global step 12: {'reward': 0.5}``.

The time in the line lacks its year: it is not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.signals.numbers import number
from exporter.runs.signals.record import Event, Record
from exporter.runs.sources.endings import ending
from exporter.runs.sources.python_dict import Dicts
from exporter.runs.sources.terminal import pieces
from exporter.runs.sources.whole import Whole

EVALUATION = "eval"
"""Stream of evaluations: the asynchronous trainer logs them when it is steps ahead."""

_LINE_START = r"(?:^|[\])|])\W*"
_STEP = re.compile(_LINE_START + r"Global step (\d{1,15}): $")
_EVALUATION = re.compile(
    _LINE_START + r"(?:Evaluation completed in [^'\"]{1,60}, global_step (\d{1,15}), eval_metrics"
    r"|Eval at step (\d{1,15})): $"
)
_RECORD = re.compile(
    rb"(?:Global step \d{1,15}|global_step \d{1,15}, eval_metrics|Eval at step \d{1,15}): \{['\"]"
)


class OpenRlhf(Whole):
    """OpenRLHF's console output, of the synchronous and the asynchronous trainer."""

    name = "openrlhf_console"
    framework = "openrlhf"

    def __init__(self) -> None:
        self._dicts = Dicts()

    @staticmethod
    def recognises(line: bytes) -> bool:
        return _RECORD.search(line) is not None

    def read(self, line: bytes) -> Iterator[Event]:
        for piece in pieces(line):
            for before, values in self._dicts.read(piece):
                if any(number(value) is not None for value in values.values()):
                    yield from _record(before, values)
        if ended := ending(line):
            yield ended


def _record(before: str, values: dict[str, str | None]) -> Iterator[Record]:
    if step := _STEP.search(before):
        yield Record(int(step[1]), values)
    elif evaluation := _EVALUATION.search(before):
        yield Record(int(evaluation[1] or evaluation[2]), values, stream=EVALUATION)
