"""A trainer that writes its log and makes no step: it loads, waits or fails again and again."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.runs.log import Log
from exporter.runs.names import printable
from exporter.runs.run import Run

GROWING_SECONDS = 600.0
"""A log that has not grown for that long grows no more: whoever wrote it has ended."""


def unstarted(logs: Iterable[Log], runs: Iterable[Run], now: float) -> dict[str, float]:
    """The oldest log that grows without a step, by its path, and when it appeared; or nothing.

    A step of any run that was logged since explains a log without one: it is the standard error, or
    somebody's notes, beside that run. ``now`` in seconds of the steady clock, times since the epoch.
    """
    stepped = max((run.times.last for run in runs if run.times.last is not None), default=0.0)
    waiting = [log for log in logs if _waits(log, now) and log.appeared > stepped]
    oldest = min(waiting, key=lambda log: log.appeared, default=None)
    return {printable(oldest.relative): oldest.appeared} if oldest else {}


def _waits(log: Log, now: float) -> bool:
    return log.grew is not None and now - log.grew < GROWING_SECONDS and not log.has_step
