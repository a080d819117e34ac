"""verl's ``console`` logger: ``step:12 - actor/entropy:0.41 - ...`` amid everything else it prints.

The line may stand behind Ray's ``(TaskRunner pid=1)`` and colour codes, glued to tqdm bars by a
carriage return; values may be wrapped by numpy (``np.float64(0.5)``). A pseudo terminal cuts lines
after 4096 bytes: the last field of such a line is dropped, since its digits may be cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.signals.record import Ended, Event, Record, ResponseLimit, TotalSteps, number
from exporter.runs.sources.base import Source
from exporter.runs.sources.console import HINTS, ending, servers

TERMINAL_CUT = 4096
_FOLDED = " [repeated "
"""Ray adds that to a line which several processes printed."""

_STEP = re.compile(rb"(?:^|[\s\]m)|])step:(\d{1,15}) - (?=[^\r\x1b\x00])")
_BREAKS = b"\r\x1b\x00"
"""Bytes at which the fields end: a bar redraws itself there, or a colour changes."""
_MAY_MATTER = re.compile(
    rb"[Tt]otal.training.steps|max_response_length|Training Progress: 100%|Final validation metrics"
    rb"|Total time for train steps|" + HINTS
)
_TOTAL = re.compile(rb"(?:Total training steps: |'total_training_steps': )(\d{1,15})\b")
_LIMIT = re.compile(rb"'max_response_length': (\d{1,15})\b")
_FULL_BAR = re.compile(rb"Training Progress: 100%\|[^|]*\| (\d+)/\1 ")
_FINISHED = re.compile(rb"Final validation metrics|Total time for train steps")


class VerlConsole(Source):
    """verl's console output, also as W&B's ``output.log``; all versions since 0.2."""

    name = "verl_console"
    framework = "verl"

    @classmethod
    def recognises(cls, line: bytes) -> bool:
        found = _STEP.search(line)
        return found is not None and _record(found, _end(found)) is not None

    def parse(self, line: bytes) -> Iterator[Event]:
        found = _STEP.search(line)
        if found and (record := _record(found, end := _end(found))):
            yield record
            line = line[: found.start()] + line[end:]
        if _MAY_MATTER.search(line):
            if total := _TOTAL.search(line):
                yield TotalSteps(int(total[1]))
            if limit := _LIMIT.search(line):
                yield ResponseLimit(int(limit[1]))
            if _FINISHED.search(line) or _FULL_BAR.search(line):
                yield Ended("finished")
            elif ended := ending(line):
                yield ended
        if mention := servers(line):
            yield mention


def _end(found: re.Match[bytes]) -> int:
    """Where the fields end that begin behind ``found``. A pattern would take ten times as long."""
    breaks = [found.string.find(byte, found.end()) for byte in _BREAKS]
    return min((at for at in breaks if at >= 0), default=len(found.string))


def _record(found: re.Match[bytes], end: int) -> Record | None:
    fields = found.string[found.end() : end].decode("utf-8", "replace").split(" - ")
    fields[-1] = fields[-1].partition(_FOLDED)[0]
    if end == TERMINAL_CUT:
        fields.pop()
    try:
        values = dict([field.rsplit(":", 1) for field in fields])
    except ValueError:  # a key with " - " in it
        values = dict([pair for field in fields if len(pair := field.rsplit(":", 1)) == 2])
    if not any(number(value) is not None for value in values.values()):
        return None
    return Record(int(found[1]), values)
