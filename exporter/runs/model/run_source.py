"""Sources of runs: logs, polled pages and servers, registered pages; and the states of what they see.

Whether and how a run has ended follows from its log, its writer and its silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple, Protocol

from exporter.runs.files.launch import Launch
from exporter.runs.model.exporter_health import Health
from exporter.runs.model.run import Run
from exporter.runs.model.run_set import RunSet
from exporter.runs.signals.record import Ended
from exporter.runs.stats.catalogue import STATES

GONE_SECONDS = 10.0  # A writer must be away that long: a restart by a wrapper script takes a few seconds
TRACEBACK_SECONDS = 60.0
"""Silence after a traceback or the last planned step that makes it the end, where no writer can be seen. A
log that grows for longer behind a traceback is that of a trainer that survived it."""


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
    state by the wrapper of `stepwatch run`, if there is one: as the trainer's parent it knows. ``after`` is
    for how long the log grew behind what it said of the end.
    """

    ended: Ended | None
    step: int | None
    total: int | None
    quiet: float
    gone: float | None
    held: bool
    typical: float | None
    launched: str | None = None
    after: float = 0.0


def state(evidence: Evidence, silence: Silence) -> str:
    """The state of a run: running, finished, failed, vanished or stopped."""
    launched, said = evidence.launched, _said(evidence)
    gone = evidence.gone is not None and evidence.gone >= GONE_SECONDS
    silent = evidence.quiet > silence.limit(evidence.typical)
    all_steps = evidence.step is not None and evidence.step == evidence.total
    # A trainer that made its last step may still save what it learnt: that is no end, and no hang either.
    alive = evidence.held or launched == "running"
    over = (
        said is not None
        or gone
        or launched == "stopped"
        or silent
        or (not alive and _is_brief_silence(evidence))
    )
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
        return "stopped" if evidence.total is None else "vanished"
    return "stopped" if silent and not evidence.held else "running"


def _is_brief_silence(evidence: Evidence) -> bool:
    return evidence.quiet > max(TRACEBACK_SECONDS, 2 * (evidence.typical or 0.0))


def _said(evidence: Evidence) -> str | None:
    """The end that the log reports; what may have been caught counts if they were its last words."""
    ended = evidence.ended
    if ended is None:
        return None
    if ended.certain:
        return ended.state
    if evidence.after > TRACEBACK_SECONDS:
        return None
    if evidence.gone is not None:
        over = evidence.gone >= GONE_SECONDS
    else:
        over = not evidence.held and _is_brief_silence(evidence)
    return ended.state if over else None


Place = tuple[Path, str]  # A log or polled target, and the name that it gives a run
ENDED_BADLY = frozenset({"failed", "vanished", "stopped"})


class Signs(NamedTuple):
    """Signs of life of a run, in seconds: since its last record, and since its writer is gone.

    ``writer``: whether it is present; ``None`` if that cannot be seen. ``launched``: the state by the wrapper
    that started it, if there is one. ``all_steps``: since its last planned step; 0 for others. ``after``: for
    how long the log grew behind what it said of the end.
    """

    quiet: float
    gone: float | None
    writer: bool | None
    launched: str | None = None
    all_steps: float = 0.0
    after: float = 0.0


@dataclass(slots=True, frozen=True)
class Judge:
    """When a run is silent, and when it leaves: ``forget_after`` in seconds."""

    silence: Silence
    forget_after: float

    def state(self, run: Run, signs: Signs) -> str:
        """The run's state, or ``forgotten``, or ``dormant`` if it had ended badly before it was watched."""
        evidence = Evidence(
            run.ended,
            run.progress.step,
            run.total,
            max(signs.quiet, signs.all_steps),
            signs.gone,
            bool(signs.writer),
            run.times.pace.typical(),
            signs.launched,
            signs.after,
        )
        now = state(evidence, self.silence)
        if signs.quiet > self.forget_after and now != "running":
            return "forgotten"
        if not run.watched and now in ENDED_BADLY:
            return "dormant"
        return now


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


class RunSource(Protocol):
    """A source of records, and the runs that they make up.

    ``sightings`` are the runs to show as of the last ``update``, ``dormant`` counts those that had ended
    before they were watched. ``named_by_path`` are the logs whose paths name their runs, each with its path
    below the watched folder.
    """

    sightings: Sequence[Sighting]
    dormant: int
    named_by_path: Mapping[Path, PurePath]

    def start(self) -> None:
        """Start the background threads."""

    def look(self) -> bool:
        """Read what is new, without the collector's lock; return whether there is more to read at once."""

    def update(self, judge: Judge, now: float) -> None:
        """Judge all runs, under the lock; ``now`` in seconds of the steady clock."""

    def run_sets(self) -> Sequence[RunSet]:
        """All runs, shown or not."""

    def report(self, health: Health, wall: float) -> None:
        """Add what the exporter serves about this source; ``wall`` in seconds since the epoch."""

    def save(self) -> None:
        """Write what the next start could not read again, if it changed. Raises HungError."""
