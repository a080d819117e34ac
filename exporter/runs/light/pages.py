"""The pages as HTML, from their templates."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from exporter.runs.light import formatting
from exporter.runs.overview import charts
from exporter.runs.overview.charts import Chart, rank, thinned
from exporter.runs.overview.models import (
    Firing,
    Health,
    Omitted,
    Range,
    RunDetails,
    RunId,
    RunSummary,
    State,
    ordered,
)
from exporter.runs.overview.overview import Overview

TEMPLATES = Path(__file__).with_name("templates")
SECONDS = 10
"""Between two loads of a page that refreshes itself: time to read, and soon enough for steps of seconds."""
WIDTH = 100  # of a gauge, in units of the picture, which the page stretches
_OTHERS = re.compile(r"; \w+ fires")
"""What a message says of the run's other alerts, which a page shows itself."""


class Zone(NamedTuple):
    """A part of a gauge, from one place to another, and the state of a value there."""

    state: State
    start: int
    end: int


class Gauge(NamedTuple):
    """A band of zones, and where the value is."""

    zones: tuple[Zone, ...]
    mark: int


class Pages:
    """Makes pages. ``watched`` are folders in which runs are searched; ``agents`` leads to agents' runs."""

    def __init__(self, watched: Sequence[str], agents: str) -> None:
        self._environment = charts.environment(TEMPLATES)
        self._environment.globals |= {
            "formatting": formatting,
            "count": charts.plural,
            "gauge": gauge,
            "detailed": detailed,
            "named": named,
            "description": lambda alert: _OTHERS.sub("", alert.description),
            "look": charts.severity_class,
            "watched": watched,
            "agents": agents,
            "seconds": SECONDS,
        }
        style = self._environment.get_template("style.css.j2").render()
        self._environment.globals["style"] = charts.safe(style)
        digest = b64encode(sha256(style.encode()).digest()).decode()
        self.style, self.seconds = f"sha256-{digest}", SECONDS

    def runs(self, overview: Overview, as_of: str) -> bytes:
        """All runs, and alerts about none; ``as_of`` is the time, for a page that does not refresh itself."""
        runs = ordered(overview.runs())
        levels = ["finished" if run.finished else run.severity for run in runs]
        kinds = {
            "critical": levels.count("critical"),
            "with a warning": levels.count("warning"),
            "fine": levels.count("info") + levels.count(""),
            "finished": levels.count("finished"),
        }
        return self._made(
            "runs",
            "./",
            runs=runs,
            counted=charts.run_counts(kinds),
            notifies=overview.notifies,
            others=overview.others(),
            actions=[action for action in overview.actions if action.open],
            omitted=overview.omitted,
            trouble=overview.prometheus,
            faults=overview.faults,
            as_of=as_of,
        )

    def run(self, details: RunDetails, overview: Overview, as_of: str) -> bytes:
        """One run, with its curves; ``as_of`` as for ``runs``."""
        run, rows = details.summary, details.rows
        logged = {signal for row in rows for signal in row.values}
        core = [health.signal for health in run.healths if health.signal in logged]
        drawn: list[Chart] = []  # the curves thinned to what can be seen, without those that have no point
        for chart in details.charts:
            curves, limits = (
                tuple(line for each in lines if (line := thinned(each)).pieces)
                for lines in (chart.curves, chart.limits)
            )
            if curves:
                drawn.append(replace(chart, curves=curves, limits=limits))
        return self._made(
            "run",
            "../",
            run=run,
            notifies=overview.notifies,
            charts=drawn,
            episodes=details.episodes,
            actions=[action for action in overview.actions if action.run == run.name],
            departures=details.departures,
            rows=rows,
            signals=[*core, *sorted(logged - set(core))],
            trouble=overview.prometheus or details.gap,
            faults=overview.faults,
            as_of=as_of,
            awaited=details.awaited,
        )

    def several(self, name: str, found: Sequence[RunId]) -> bytes:
        """The page where several clusters have a run of that name."""
        return self._made("several", "../", name=name, found=found)

    def unknown(self, name: str, near: Sequence[str], omitted: Omitted) -> bytes:
        """The page where no run has that name, or not yet; ``near`` are similar names."""
        return self._made("unknown", "../", name=name, near=near, omitted=omitted)

    def _made(self, template: str, root: str, **values: Any) -> bytes:
        page = self._environment.get_template(f"{template}.html.j2").render(values, root=root)
        return page.encode("utf-8", "backslashreplace")


def detailed(run: RunSummary, *, whole: bool) -> list[Firing]:
    """The alerts shown in full: the worst, or ``whole`` all but those with a worse one of their topic."""
    alerts = run.alerts
    if whole:
        worst: dict[str, int] = {}
        for alert in alerts:
            worst[alert.topic] = min(rank(alert.severity), worst.get(alert.topic, len(charts.SEVERITIES)))
        return [alert for alert in alerts if rank(alert.severity) == worst[alert.topic]]
    # What the first one mutes may be worse.
    return [alert for alert in alerts if rank(alert.severity) <= rank(alerts[0].severity)]


def named(run: RunSummary, *, whole: bool) -> str:
    """The names of all other alerts."""
    shown = {alert.name for alert in detailed(run, whole=whole)}
    names = (
        f"{alert.name}{' (silenced)' * bool(alert.silenced_until)}"
        f"{f' (muted by {alert.inhibited_by})' if alert.inhibited_by else ''}"
        for alert in run.alerts
        if alert.name not in shown
    )
    return ", ".join(dict.fromkeys(names))


def gauge(health: Health) -> Gauge | None:
    """The gauge of a signal; ``None`` without a value, or without a limit to compare it with."""
    warning, critical, value = health.warning, health.critical, health.judged
    bounds = (critical.low, warning.low, warning.high, critical.high)
    limits = sorted({limit for limit in bounds if limit is not None and isfinite(limit)})
    if value is None or not isfinite(value) or not limits:
        return None
    lowest, highest = min(*limits, value), max(*limits, value)
    air = 0.25 * (highest - lowest) or 0.5 * abs(highest) or 1.0
    # What is never negative gets no negative end.
    low, high = (max(0.0, lowest - air) if lowest >= 0 else lowest - air), highest + air

    def place(number: float) -> int:
        return round((number - low) / (high - low) * WIDTH)

    def state(number: float) -> State:
        levels: tuple[tuple[State, Range], ...] = (("critical", critical), ("warning", warning))
        for name, limit in levels:
            too_low = limit.low is not None and number < limit.low
            if too_low or (limit.high is not None and number > limit.high):
                return name
        return "ok"

    zones = (Zone(state((a + b) / 2), place(a), place(b)) for a, b in pairwise([low, *limits, high]))
    return Gauge(tuple(zone for zone in zones if zone.start < zone.end), place(value))
