"""What the light page shows of runs and alerts.

Steps are the trainer's, times are seconds since the epoch, values are in the unit of their panel. All of it
is immutable, so any thread may show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from exporter.http.exposition import escape
from exporter.runs.model.history import Point, Row
from exporter.runs.overview.charts import SEVERITIES, Chart, rank
from exporter.runs.signals.unmapped import Candidate
from exporter.runs.stats.departure import Departure


class RunId(NamedTuple):
    """What identifies a run; ``cluster`` is ``None`` where none are told apart, empty without that label."""

    run: str
    cluster: str | None = None

    @property
    def matchers(self) -> str:
        """What selects its series in PromQL."""
        chosen = f'run="{escape(self.run)}"'
        return chosen if self.cluster is None else f'{chosen},cluster="{escape(self.cluster)}"'


def meant(runs: Iterable[RunId], name: str, cluster: str) -> list[RunId]:
    """Return the runs that a link means: one, those of several clusters if it names none, or none."""
    named = [run for run in runs if run.run == name]
    exact = [run for run in named if (run.cluster or "") == cluster] or [
        run for run in named if not run.cluster
    ]
    return exact or ([] if cluster else named)


State = Literal["ok", "warning", "critical", "unknown"]
"""Of a signal. ``unknown``: it is not logged, or has no known limit."""
BAD_ENDS = {
    "failed": ("critical", "Its log holds the error that ended it."),
    "vanished": ("critical", "Its process is gone before the end."),
    "stopped": ("warning", "It is silent, and nothing says how it ended."),
}
"""Severity and reason of states that are bad whether or not Prometheus could report them."""
STALLED = "Stalled"  # the alert that tells a running run that stands still from one that trains


@dataclass(frozen=True, slots=True)
class Range:
    """The range that a value may not leave; ``None`` where that side has no limit."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """The state of one core signal.

    ``value`` is the last one, ``judged`` the smoothed one that is compared with the limits; ``None`` where
    there is none. ``unit`` is Grafana's name for it. ``alerts`` are the names of those that make it
    ``warning`` or ``critical``, whatever the value is. ``since`` is the step of the first onset of these;
    without any, the step from which on the value is out of range.
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
    """An alert that fires now.

    ``action`` is what to do first, without a full stop. ``since`` and ``step`` are its onset
    (``exporter.alert_labels``). ``silenced_until`` is the end of its last silence.
    ``book`` is what the runbook says of it, by heading. ``inhibited_by`` names the alert for which
    Alertmanager keeps it back. ``labels`` are all of its labels, by which Alertmanager knows it.
    ``passed`` is when its condition ceased to hold, if the alert outlasts that now; ``ends`` is when it
    ends then, where that is known.
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
    step: int | None = None
    book: tuple[tuple[str, str], ...] = ()
    inhibited_by: str = ""
    passed: float | None = None
    ends: float | None = None


def causes_first(alerts: Iterable[Firing]) -> list[Firing]:
    """The worst first, each followed by those that it mutes; last those muted by what is not among them."""
    worst = sorted(alerts, key=lambda alert: (rank(alert.severity), alert.name))
    # Of two with one name the last, so that what they mute follows both.
    place = {alert.name: index for index, alert in enumerate(worst) if not alert.inhibited_by}

    def order(each: tuple[int, Firing]) -> tuple[int, bool]:
        index, alert = each
        muted = bool(alert.inhibited_by)
        return place.get(alert.inhibited_by, len(worst)) if muted else index, muted

    return [alert for _, alert in sorted(enumerate(worst), key=order)]


def leading_onset(alerts: Iterable[Firing]) -> int | None:
    """The step at which the first of the worst alerts began, of those that no other one mutes."""
    begun = [
        (rank(alert.severity), alert.step)
        for alert in alerts
        if alert.severity in ("critical", "warning") and alert.step is not None and not alert.inhibited_by
    ]
    return min(begun)[1] if begun else None


@dataclass(frozen=True, slots=True)
class RunAction:
    """What the bridge does or did about a run, in its words."""

    run: str
    alert: str
    steps: str
    state: str
    opened: float
    open: bool


@dataclass(frozen=True, slots=True)
class Episode:
    """An alert from its onset's step to the last at which it fired; ``summary`` is empty once it is over."""

    name: str
    severity: str
    first_step: int
    last_step: int
    firing: bool
    summary: str


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run without its history.

    ``total`` is its number of planned steps, ``age_seconds`` the time since its last step. ``restarts``
    counts its starts but the first, ``resumes`` those that went on from a later step. By signal, ``latest``
    are the last values, ``usual`` the medians of the last few, and ``means`` the smoothed values.
    ``candidates`` are signals that it lacks, with the keys that may carry them. ``log`` is the path of the
    log that `stepwatch run` writes of it, empty if that did not start it.

    ``cluster`` is that of its ``RunId``, ``nodes`` are those whose agents read it. ``is_remote``: only they
    do, and all that is known of it is from Prometheus; ``arrives``: as far as that is known, they still do.
    """

    name: str
    state: str
    framework: str
    step: int | None
    total: int | None
    age_seconds: float | None
    restarts: int
    resumes: int
    healths: tuple[Health, ...] = ()
    firing: tuple[Firing, ...] = ()
    latest: Mapping[str, float] = field(default_factory=dict)
    usual: Mapping[str, float] = field(default_factory=dict)
    means: Mapping[str, float] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    log: str = ""
    cluster: str | None = None
    nodes: tuple[str, ...] = ()
    is_remote: bool = False
    arrives: bool = True

    @property
    def id(self) -> RunId:
        """What identifies it."""
        return RunId(self.name, self.cluster)

    @property
    def over(self) -> bool:
        """Whether it has ended, well or badly."""
        return self.state not in ("running", "stalled")

    @property
    def finished(self) -> bool:
        """Whether it came to its planned end: nothing about it is urgent any more."""
        return self.state == "finished"

    @property
    def severity(self) -> str:
        """The worst severity of its alerts, signals and end; empty if there is none."""
        if self.finished:
            return ""
        levels = {alert.severity for alert in self.firing} | {health.state for health in self.healths}
        levels.add(BAD_ENDS.get(self.state, ("", ""))[0])
        return next((severity for severity in SEVERITIES if severity in levels), "")

    @property
    def ending(self) -> str:
        """How it came to a bad end; empty if it did not, or an alert reports it."""
        reported = any(alert.name == f"Run{self.state.title()}" for alert in self.firing)
        return "" if reported else BAD_ENDS.get(self.state, ("", ""))[1]

    @property
    def alerts(self) -> list[Firing]:
        """Its alerts as ``causes_first``; of a finished run only those of severity ``info``."""
        return causes_first(alert for alert in self.firing if not self.finished or alert.severity == "info")

    @property
    def diagnoses(self) -> list[Health]:
        """Signals out of range that none of its alerts has reported, the worst first."""
        summaries = [alert.summary for alert in self.firing if alert.summary]
        bad = [health for health in self.healths if health.state in SEVERITIES and not self.finished]
        new = (health for health in bad if not any(summary in health.diagnosis for summary in summaries))
        return sorted(new, key=lambda health: rank(health.state))


def ordered(runs: Iterable[RunSummary]) -> list[RunSummary]:
    """The worst first, then those without a problem, then finished ones, of these the latest first."""
    return sorted(
        runs,
        key=lambda run: (
            run.finished,
            rank(run.severity),
            (run.age_seconds or 0.0) * run.finished,
            run.name,
            run.cluster or "",
        ),
    )


@dataclass(frozen=True, slots=True)
class RunDetails:
    """A run with its history, charts with a firing alert first; ``gap``: what Prometheus did not report.

    ``departures`` are the signals that left their bands around the leading alert's onset, the first one
    first; ``None`` while no alert fires.
    """

    summary: RunSummary
    charts: tuple[Chart, ...]
    episodes: tuple[Episode, ...]
    rows: tuple[Row, ...]
    departures: tuple[tuple[str, Departure], ...] | None = None
    gap: str = ""
    awaited: bool = False


@dataclass(frozen=True, slots=True)
class SeriesLimit:
    """A limit over the steps as JSON; unless it stands ``alone``, its alert has further conditions."""

    name: str
    alert: str
    severity: str
    side: str
    alone: bool
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """The lowest and highest value of each stretch of records; the worst limits come first."""

    signal: str
    unit: str
    points: tuple[Point, ...]
    limits: tuple[SeriesLimit, ...]


@dataclass(frozen=True, slots=True)
class Omitted:
    """What is not shown.

    ``reading``: the logs that were there at the start are still being read. ``dormant`` runs had ended
    badly before they were watched. ``live`` and ``ended`` runs, and ``files``, are beyond the limits.
    ``hung`` are the mounts that do not answer. ``remote`` runs are those of agents that are too many.
    """

    reading: bool = False
    dormant: int = 0
    live: int = 0
    ended: int = 0
    files: int = 0
    hung: tuple[str, ...] = ()
    remote: int = 0
