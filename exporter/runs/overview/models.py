"""What is shown of runs: curves with their limits, how each core signal is, and the alerts.

Steps are the trainer's, times are seconds since the epoch, values are in the unit of their panel.
Nothing here changes any more once it was made: it may be shown in any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from exporter.drawing.chart import Band, Chart
from exporter.drawing.curve import Curve, Point
from exporter.runs.model.history import Row
from exporter.runs.signals.candidates import Candidate

__all__ = [
    "Band",
    "Candidate",
    "Chart",
    "Curve",
    "Episode",
    "Firing",
    "Health",
    "Point",
    "Range",
    "Row",
    "RunStory",
    "RunSummary",
    "Series",
    "State",
]

State = Literal["ok", "warning", "critical", "unknown"]
"""How a signal is. ``unknown``: it is not logged, or no one knows a limit of it."""


@dataclass(frozen=True, slots=True)
class Range:
    """What a value may not leave; ``None`` where there is no limit on that side."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """How one core signal is.

    ``signal`` is its name in the metrics, ``title`` the name for people. ``value`` is the last one,
    ``judged`` the smoothed one that is held against the limits; ``None`` where there is none. ``unit``
    is Grafana's name for it. ``warning`` and ``critical`` are the ranges beyond which it is so.
    ``diagnosis`` is a sentence or more; ``since`` is the step from which on the value is out of range.
    ``alerts`` are the names of those that make it ``warning`` or ``critical``, whatever the value is now.
    """

    signal: str
    title: str
    value: float | None
    judged: float | None
    unit: str
    state: State
    warning: Range
    critical: Range
    diagnosis: str
    since: int | None = None
    alerts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that fires now, by Prometheus.

    ``action`` is what to do first, without a full stop. ``since`` is when it began, ``silenced_until`` when
    its last silence in Alertmanager ends, both in seconds since the epoch. ``labels`` are all of its labels,
    by which Alertmanager knows it.
    """

    name: str
    severity: str
    topic: str
    summary: str
    description: str
    action: str
    runbook: str
    dashboard: str
    value: float | None
    since: float | None
    labels: frozenset[tuple[str, str]] = frozenset()
    silenced_until: float | None = None


@dataclass(frozen=True, slots=True)
class Episode:
    """An alert that fired from one step to another; ``summary`` is empty once it is over."""

    name: str
    severity: str
    first_step: int
    last_step: int
    firing: bool
    summary: str


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in one line: ``age_seconds`` since its last step, ``total`` the steps it is to make.

    ``restarts`` counts its starts but the first, ``resumes`` those that went on from a later step.
    """

    name: str
    state: str
    framework: str
    step: int | None
    total: int | None
    age_seconds: float | None
    restarts: int
    resumes: int
    healths: tuple[Health, ...]
    firing: tuple[Firing, ...]


@dataclass(frozen=True, slots=True)
class RunStory:
    """All of a run. Charts are in the order of the dashboard, those with a firing alert first.

    ``lack`` says what Prometheus does not know of its past, and why. ``candidates`` are signals that
    the run does not have, with the keys that may carry them.
    """

    summary: RunSummary
    charts: tuple[Chart, ...]
    episodes: tuple[Episode, ...]
    rows: tuple[Row, ...]
    lack: str = ""
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesLimit:
    """A limit over the steps, written as JSON as it is: the value may not be beyond it on this ``side``.

    ``name`` is what the dashboard calls it. Unless it stands ``alone`` the alert looks at more than this.
    """

    name: str
    alert: str
    severity: str
    side: str
    alone: bool
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """A signal over the steps: the lowest and the highest value of each stretch of records.

    A point without a number says that the curve is broken there. Of the limits the worst come first.
    """

    signal: str
    unit: str
    points: tuple[Point, ...]
    limits: tuple[SeriesLimit, ...]


@dataclass(frozen=True, slots=True)
class Unshown:
    """What is not shown.

    ``reading``: the logs that were there at the start are still being read. ``dormant`` runs had ended
    badly before they were watched. ``live`` and ``ended`` runs, and ``files``, are beyond the limits.
    ``hung`` are the mounts that do not answer.
    """

    reading: bool = False
    dormant: int = 0
    live: int = 0
    ended: int = 0
    files: int = 0
    hung: tuple[str, ...] = ()
