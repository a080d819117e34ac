"""How a run ended, decided from its words, its writer, its silence and the record of its wrapper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path, PurePath
from typing import NamedTuple

from exporter.runs.files.launch import Launch
from exporter.runs.model.run import Run
from exporter.runs.stats.catalogue import STATES

GONE_SECONDS = 10.0  # A writer must be away that long: a restart by a wrapper script takes a few seconds
TRACEBACK_SECONDS = 60.0
"""Silence after a traceback or the last planned step that makes it the end, where no writer can be seen. A
log that grows for longer behind a traceback is that of a trainer that survived it."""
ENDED_BADLY = frozenset({"failed", "vanished", "stopped"})
ENDS = ("finished", "failed", "running", "vanished", "stopped")
"""What one log knows of the end, the others may not: the first that any of them says counts."""
Place = tuple[Path, str]  # A log or polled target, and the name that it gives a run


class Signs(NamedTuple):
    """Signs of life of a run, in seconds: since its last record, and since its writer is gone.

    ``gone`` is ``None`` while the writer is there or cannot be seen, ``writer`` if it cannot be seen.
    ``launched`` is the state by the wrapper of `stepwatch run`, if there is one: as the trainer's parent it
    knows. ``all_steps``: since its last planned step; 0 for others. ``after``: for how long the log grew
    behind what it said of the end.
    """

    quiet: float
    gone: float | None
    writer: bool | None
    launched: str | None = None
    all_steps: float = 0.0
    after: float = 0.0


@dataclass(slots=True, frozen=True)
class Silence:
    """When silence is long: after ``seconds``, and after ``intervals`` typical intervals."""

    seconds: float = 600.0
    intervals: float = 5.0

    def limit(self, typical: float | None) -> float:
        """Seconds without a step after which a run is silent."""
        return max(self.seconds, self.intervals * (typical or 0.0))


@dataclass(slots=True, frozen=True)
class Judge:
    """When a run is silent, and when it leaves: ``forget_after`` in seconds."""

    silence: Silence
    forget_after: float

    def state(self, run: Run, signs: Signs) -> str:
        """The run's state, or ``forgotten``, or ``dormant`` if it had ended badly before it was watched."""
        now = state(run, signs, self.silence)
        if signs.quiet > self.forget_after and now != "running":
            return "forgotten"
        return "dormant" if not run.watched and now in ENDED_BADLY else now


@dataclass(slots=True)
class Sighting:
    """A run as one source shows it: ``at`` that source, ``place`` below the watched folder.

    ``process`` is the id of the process that has the log open, if one is seen; ``gone`` when its writer
    ended, in seconds of the steady clock; ``unread`` since when the log cannot be read, and ``appeared``
    when it was first looked at, in seconds since the epoch (``None`` of what is polled). ``duplicates`` are
    the same run in its other logs, ``writers`` the ids of the living processes that write them. ``text`` is
    when a log without a record was written last, in seconds since the epoch (``None`` of all others);
    ``launch`` is set for a run that `stepwatch run` started.
    """

    at: Place
    place: PurePath
    run: Run
    state: str
    writer: bool | None
    process: str | None = None
    duplicates: tuple[Run, ...] = ()
    gone: float | None = None
    unread: float | None = None
    writers: frozenset[str] = frozenset()
    appeared: float | None = None
    text: float | None = None
    launch: Launch | None = None


def is_shown(run_state: str) -> bool:
    """Whether runs of this state are on the pages: not those that are forgotten or dormant."""
    return run_state in STATES


def state(run: Run, signs: Signs, silence: Silence) -> str:
    """The state of a run: running, finished, failed, vanished or stopped."""
    typical, step, total, launched = run.times.pace.typical(), run.progress.step, run.total, signs.launched
    quiet = max(signs.quiet, signs.all_steps)
    gone = signs.gone is not None and signs.gone >= GONE_SECONDS
    silent = quiet > silence.limit(typical)
    briefly_silent = quiet > max(TRACEBACK_SECONDS, 2 * (typical or 0.0))
    said = run.ended.state if run.ended else None
    if run.ended and not run.ended.certain:  # it may have been caught: it counts if these were the last words
        over = gone if signs.gone is not None else not signs.writer and briefly_silent
        said = said if over and signs.after <= TRACEBACK_SECONDS else None
    all_steps = step is not None and step == total
    # A trainer that made its last step may still save what it learnt: that is no end, and no hang either.
    alive = signs.writer or launched == "running"
    over = said is not None or gone or launched == "stopped" or silent or (not alive and briefly_silent)
    done = (all_steps and over) or said == "finished"
    # Who asked a trainer to stop after its last step was late.
    overruled = (launched == "running" and done) or (launched == "stopped" and all_steps)
    if launched and not overruled:
        return launched
    if done:
        return "finished"
    if said is not None:
        return said
    if gone:
        return "stopped" if total is None else "vanished"
    return "stopped" if silent and not signs.writer else "running"


def ended_before_a_step(run: Run, now: str, *, writer: bool | None, launched: bool) -> bool:
    """Whether the run of a text without a record, in state ``now``, has ended badly.

    A program that ends without an error has done what it should, unless it is known to be a trainer. Of a
    writer that cannot be seen (``None``), silence means nothing before the first step, and only a trainer's
    error is an end.
    """
    is_trainer = run.total is not None or bool(run.servers)
    if launched and now in ENDED_BADLY:
        return True
    if now == "failed" and run.ended:
        sure = run.ended.certain and not run.ended.cause  # Slurm ends any job
        return sure or is_trainer or writer is False
    return now in ("vanished", "stopped") and is_trainer and writer is False


def of_all_logs(group: Sequence[Sighting]) -> str:
    """What all logs of a run together say about its end.

    A wrapper knows. Where one log's writer is gone, another's, which cannot be seen, goes on only if it has
    logged since; and the steps that were planned, if another log names them and no step exceeds them, decide
    whether it was done.
    """
    if launched := [one.state for one in group if one.launch and one.launch.state]:
        return launched[0]
    gone = max((one.gone for one in group if one.gone is not None), default=-inf)
    # without those that only seem to go on: no process is seen to write them, no step since another's end
    states = {
        one.state for one in group if one.state != "running" or one.writer or (one.run.moved or -inf) > gone
    } or {one.state for one in group}
    now = next(state for state in ENDS if state in states)
    total, step = (max(one.run.total or 0 for one in group), max(one.run.progress.step for one in group))
    if now != "stopped" or gone == -inf or total < max(1, step):
        return now
    return "finished" if step == total else "vanished"
