"""Runs as they are to be shown: their names, their states, and whether they are shown at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from exporter.runs.model.lifecycle import Evidence, Silence, state
from exporter.runs.model.run import Run
from exporter.runs.stats.catalogue import STATES
from exporter.runs.visible.gpu_processes import RunGPUs

SHOWN = frozenset(STATES)
ENDED_BADLY = frozenset({"failed", "vanished", "stopped"})


class View(NamedTuple):
    """A run as it is to be shown: its name, state, and whether a writer was seen (or cannot be).

    ``twins`` is the same run as its other logs tell it: one of them may be shown next. ``unread``: since
    when its log cannot be read, as the mount hangs, in seconds since the epoch. ``writers`` are the ids of
    the living processes that write its logs, ``gpus`` what is known of its GPUs.
    """

    name: str
    run: Run
    state: str
    writer: bool | None
    twins: tuple[Run, ...] = ()
    unread: float | None = None
    writers: frozenset[str] = frozenset()
    gpus: RunGPUs = RunGPUs()


class Signs(NamedTuple):
    """Signs of life of a run, in seconds: since when nothing came, since when its writer is away.

    ``writer``: is it there; ``None`` if that cannot be seen.
    """

    quiet: float
    gone: float | None
    writer: bool | None


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
            signs.quiet,
            signs.gone,
            bool(signs.writer),
            run.times.pace.typical(),
        )
        now = state(evidence, self.silence)
        if signs.quiet > self.forget_after and now != "running":
            return "forgotten"
        if not run.watched and now in ENDED_BADLY:
            return "dormant"
        return now
