"""A trainer that writes its log and makes no step: it loads, waits or fails again and again."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.runs.logs.log import Log
from exporter.runs.logs.names import home, printable
from exporter.runs.model.run import Run

GROWING_SECONDS = 600.0
"""A log that has not grown for that long grows no more: its writer has ended."""

TOGETHER_SECONDS = 60.0
"""A trainer opens its files within that time, and buffers what it logs for no longer."""


def unstarted(logs: Iterable[Log], runs: Iterable[Run], now: float) -> dict[str, float]:
    """The oldest log that grows without a step, by its path, and when it appeared; or nothing.

    A step of any run that was logged since explains a log without one: it is the standard error, or
    someone's notes, beside that run. ``now`` in seconds of the steady clock, times since the epoch.
    """
    stepped = max((run.times.last for run in runs if run.times.last is not None), default=0.0)
    waiting = [log for log in logs if _waits(log, now) and log.appeared > stepped]
    oldest = min(waiting, key=lambda log: log.appeared, default=None)
    return {printable(oldest.relative): oldest.appeared} if oldest else {}


def _waits(log: Log, now: float) -> bool:
    """Has its writer not ended, as far as anyone can see?"""
    growing = log.grew is not None and now - log.grew < GROWING_SECONDS
    return growing and log.writer is not False and not log.has_step


def explains(run: Run, log: Log | None, text: Log, process: str | None, of_text: str | None) -> bool:
    """Is a text what else the trainer of a run writes: its standard error, say?

    The run made steps while the text was there. Two files of one process, or of one name but for its
    end, belong together; so do a run and a text beside it that came at one time, unless each has a writer of
    its own in a folder of many runs.

    Args:
        run: A run with its steps.
        log: Its log; ``None`` of a page or a server.
        text: The text, which has no record.
        process: Writes the log, if that was seen.
        of_text: Writes the text.
    """
    first, last = run.times.start, run.times.last
    if first is None or last is None or last < text.appeared or first > text.written + TOGETHER_SECONDS:
        return False
    if log is None:
        return first > text.appeared - TOGETHER_SECONDS
    if process is not None and process == of_text:
        return True
    if log.relative.with_suffix("") == text.relative.with_suffix(""):
        return True
    own = home(text.relative)
    beside = process is None or (own.parts and home(log.relative) == own)
    return bool(beside) and log.appeared > text.appeared - TOGETHER_SECONDS
