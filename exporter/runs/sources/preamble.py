"""What a trainer's text tells before its first record: its steps to come, its servers, and its failure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from exporter.runs.signals.record import Event, TotalSteps
from exporter.runs.sources.endings import ending
from exporter.runs.sources.servers import servers

_HINTS = (
    b"raceback (most recent",
    b"otal training steps: ",
    b"'total_training_steps': ",
    b"otal optimization steps = ",
    b"HYDRA_FULL_ERROR",
    b"ChildFailedError",
    b"'raysubmit_",
)
"""Only lines with one of these tell anything; to look for them takes a tenth of a pattern's time."""

_TOTAL = re.compile(
    rb"(?:Total training steps: |'total_training_steps': |Total optimization steps = )([1-9][\d,]{0,18})\b"
)
_UNCAUGHT = re.compile(
    rb"(?:\x1b\[[0-9;]*m)*(?:\([^()]{1,100}\bpid=\d+[^()]{0,100}\)(?:\x1b\[[0-9;]*m)* ?)?"
    rb"(?:\[rank\d+\]:\s?)?(?:[^\"']{0,300}\[[^\]\"']{0,80}(?:it/s|s/it)[^\]\"']{0,60}\])?"
    rb"Traceback \(most recent call last\)"
)
"""At the start of a line, but for what Ray and PyTorch put before it, or behind a progress bar. What
programs print that a reward runs, and what pip reports of a build, is quoted or indented."""


def preamble(line: bytes) -> Iterator[Event]:
    """What the line tells; an ``Ended`` that is not certain is an exception that may have been caught."""
    if found := servers(line):
        yield found
    if not any(hint in line for hint in _HINTS):
        return
    if total := _TOTAL.search(line):
        yield TotalSteps(int(total[1].replace(b",", b"")))
    said = ending(line)
    if said and (said.certain or any(map(_UNCAUGHT.match, line.split(b"\r")))):
        yield said
