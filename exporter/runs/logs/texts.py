"""Texts without a record: a trainer that loads, waits, or fails before its first step."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.runs.logs.log import Log
from exporter.runs.logs.names import home, printable
from exporter.runs.model.run import Run
from exporter.runs.model.run_source import Sighting

GROWING_SECONDS = 600.0
"""A log that has not grown for that long grows no more: its writer has ended."""

TOGETHER_SECONDS = 60.0
"""A trainer opens its files within that time, and buffers what it logs for no longer."""


def unstarted(logs: Iterable[Log], runs: Iterable[Run], now: float) -> dict[str, float]:
    """The oldest log that grows without a step, by its path, and when it appeared; or nothing.

    A later step of any run explains a log without one: it is the standard error, or someone's notes, beside
    that run. ``now`` in seconds of the steady clock, times since the epoch.
    """
    stepped = max((run.times.last for run in runs if run.times.last is not None), default=0.0)
    waiting = [
        log
        for log in logs
        if log.grew is not None
        and now - log.grew < GROWING_SECONDS
        and log.writer is not False
        and log.appeared > stepped
        and not log.has_step
    ]
    oldest = min(waiting, key=lambda log: log.appeared, default=None)
    return {printable(oldest.relative): oldest.appeared} if oldest else {}


def explains(seen: Sighting, text: Sighting) -> bool:
    """Whether a text is another output of the trainer of a run with steps, such as its standard error.

    The run made steps while the text was there. Two files of one process, or of one name but for its
    end, belong together; so do a run and a text beside it that came at one time, unless each has a writer of
    its own in a folder of many runs.
    """
    first, last, of_text = seen.run.times.start, seen.run.times.last, text.text
    if first is None or last is None or of_text is None:
        return False
    if last < of_text.appeared or first > of_text.written + TOGETHER_SECONDS:
        return False
    earliest = of_text.appeared - TOGETHER_SECONDS
    if seen.appeared is None:  # a page or a server
        return first > earliest
    if seen.process is not None and seen.process == text.process:
        return True
    if seen.place.with_suffix("") == text.place.with_suffix(""):
        return True
    own = home(text.place)
    beside = seen.process is None or (own.parts and home(seen.place) == own)
    return bool(beside) and seen.appeared > earliest
