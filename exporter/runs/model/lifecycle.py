"""Whether and how a run has ended: from its log, its writer and its silence."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from exporter.runs.signals.record import Ended

GONE_SECONDS = 10.0
"""A writer must be away that long: a restart by a wrapper script takes a few seconds."""

TRACEBACK_SECONDS = 60.0
"""Silence after a traceback that makes it the end, where the writer cannot be seen."""


@dataclass(slots=True)
class Pace:
    """Time between steps, in seconds."""

    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    _typical: float | None = None

    def add(self, seconds: float) -> None:
        """Take the time from one step to the next."""
        if seconds > 0:
            self.intervals.append(seconds)
            self._typical = None

    def typical(self) -> float | None:
        """The usual interval, or ``None`` before there is one.

        The median of the last 64; a third of the longest of them if that is more, up to four
        medians: steps with validation or a checkpoint take ten times as long, and five times the
        typical interval must be longer than they are.
        """
        if self._typical is None and self.intervals:  # asked for at every look
            usual = median(self.intervals)
            self._typical = max(usual, min(max(self.intervals) / 3, 4 * usual))
        return self._typical


@dataclass(slots=True, frozen=True)
class Silence:
    """When silence is long: after ``seconds``, and after ``intervals`` typical intervals."""

    seconds: float = 600.0
    intervals: float = 5.0

    def limit(self, typical: float | None) -> float:
        """Seconds without a step after which a run is silent."""
        return max(self.seconds, self.intervals * (typical or 0.0))


@dataclass(slots=True)
class Evidence:
    """The signs of life of a run; times in seconds of one clock.

    ``quiet`` and ``gone`` are for how long the log has not grown and the writer has been away
    (``None``: it is there, or cannot be seen). ``held``: a writer holds the log open. ``launched`` is the
    state by the wrapper of `stepwatch run`, if there is one: as the trainer's parent it knows.
    """

    ended: Ended | None
    step: int | None
    total: int | None
    quiet: float
    gone: float | None
    held: bool
    typical: float | None
    launched: str | None = None


def state(evidence: Evidence, silence: Silence) -> str:
    """The state of a run: running, finished, failed, vanished or stopped."""
    step, total, launched = evidence.step, evidence.total, evidence.launched
    all_steps = step is not None and total is not None and step >= total
    done = all_steps or (evidence.ended is not None and evidence.ended.state == "finished")
    # A trainer with all steps done may still save what it learnt, and who asked it to stop then was late.
    overruled = (launched == "running" and done) or (launched == "stopped" and all_steps)
    if launched and not overruled:
        return launched
    if done:
        return "finished"
    if _failed(evidence):
        return "failed"
    if evidence.gone is not None and evidence.gone >= GONE_SECONDS:
        return "stopped" if evidence.total is None else "vanished"
    if not evidence.held and evidence.quiet > silence.limit(evidence.typical):
        return "stopped"
    return "running"


def _failed(evidence: Evidence) -> bool:
    ended = evidence.ended
    if ended is None or ended.state != "failed":
        return False
    if ended.certain:
        return True
    if evidence.gone is not None:
        return evidence.gone >= GONE_SECONDS
    return not evidence.held and evidence.quiet > max(TRACEBACK_SECONDS, 2 * (evidence.typical or 0.0))
