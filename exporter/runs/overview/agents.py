"""Runs that agents read, from the hub's Prometheus: this exporter does not read their logs.

A run is known by ``cluster`` and ``run``, as rules know it: what several nodes send of one is one run.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exporter.runs.model.history import ROWS, SMOOTHED, Extremes, HistorySnapshot, Point, Row
from exporter.runs.overview.charts import Mark
from exporter.runs.overview.models import RunId, RunSummary
from exporter.runs.overview.panels import Line, Panels, Query

MOST_RUNS = 100
"""That are shown: those that are running or have an alert first, then those with the latest step."""
KEPT_SECONDS = 12 * 3600.0  # so long a running run is shown of which nothing arrives any more
AT_FIRST = "1h"
"""At a start it is asked for what arrived within that time: runs of a node that is lost since then."""
USUAL = "10m"
"""The median over that time is judged of a signal without smoothed values: its steps are not known here."""
_AGENTS = 'node!=""'  # what distinguishes series of agents: nothing of the hub itself has that label
_NUMBERS = (
    *("rl_step", "rl_total_steps", "rl_run_start_timestamp_seconds", "rl_last_step_timestamp_seconds"),
    *("rl_resumes_total", "rl_restarts_total"),
)
_LABELLED = {
    "rl_run_info": "framework, node",
    "rl_run_state": "state",
    "rl_run_mark_timestamp_seconds": "note",
}
"""What says something by its labels, and by which."""

_PART, _TOTAL = "part", "total"
_LATEST, _USUAL, _MEAN = "latest ", "usual ", "mean "


@dataclass(frozen=True)
class AgentRun:
    """A run as Prometheus last had it; ``start``, ``last`` step, ``marks`` and ``seen`` are Unix seconds.

    ``last_known`` lacks its age, and what alerts say. Its ``usual`` values are medians of the last minutes.
    """

    last_known: RunSummary
    start: float | None
    last: float | None
    marks: tuple[tuple[float, str], ...]
    seen: float

    def summary(self, now: float) -> RunSummary:
        """Return the run as it is now, without what alerts say of it."""
        age = None if self.last is None else max(0.0, now - self.last)
        return replace(self.last_known, age_seconds=age, state=self.last_known.state or "running")


def asked(panels: Panels, signals: Iterable[str], window: str = "") -> str:
    """Return the PromQL of all that is shown of these runs now; ``read`` takes the answer."""

    def series(metric: str, labels: str = "") -> str:
        chosen = f"{metric}{{{','.join(filter(None, (labels, _AGENTS)))}}}"
        return f"last_over_time({chosen}[{window}])" if window else chosen

    def of_run(metric: str, by: str = "") -> str:
        return f"max by ({', '.join(filter(None, ('cluster, run', by)))}) ({series(metric)})"

    parts = {name: of_run(name) for name in _NUMBERS}
    parts |= {name: of_run(name, by) for name, by in _LABELLED.items()}
    parts["rl_run_state"] += " == 1"
    for signal in signals:
        parts[_LATEST + signal] = of_run(f"rl_{signal}")
        median = f"quantile_over_time(0.5, rl_{signal}{{{_AGENTS}}}[{window or USUAL}])"
        parts[_USUAL + signal] = f"max by (cluster, run) ({median})"
    means = (line for line in panels.lines if line.smoothed and line.signal in SMOOTHED)
    parts |= {_MEAN + line.signal: line.of() for line in means if line.promql}
    union = " or ".join(
        f'label_replace({promql}, "{_PART}", "{name}", "", "")' for name, promql in parts.items()
    )
    last = f"({of_run('rl_last_step_timestamp_seconds')} or {of_run('rl_run_info')})"
    running = series("rl_run_state", 'state="running"')
    first = f'(ALERTS{{alertstate="firing",run!=""}} or {running} == 1)'
    shown = f"topk({MOST_RUNS}, {last} + 1e10 and on (cluster, run) {first} or {last})"
    total = f'label_replace(count({last}), "{_PART}", "{_TOTAL}", "", "")'
    return f"({union}) and on (cluster, run) {shown} or {total}"


def read(result: Sequence[Mapping[str, Any]], now: float) -> tuple[dict[RunId, AgentRun], int]:
    """Return the runs of an answer to ``asked``, and how many there are, shown or not."""
    found: dict[RunId, list[tuple[str, Mapping[str, str], float]]] = {}
    total = 0
    for series in result:
        labels, value = series["metric"], float(series["value"][1])
        if labels[_PART] == _TOTAL:
            total = int(value)
        else:
            run = RunId(labels["run"], labels.get("cluster", ""))
            found.setdefault(run, []).append((labels[_PART], labels, value))
    return {run: _run(run, parts, now) for run, parts in found.items()}, total


def _run(name: RunId, parts: Sequence[tuple[str, Mapping[str, str], float]], now: float) -> AgentRun:
    infos = [labels for part, labels, _ in parts if part == "rl_run_info"]
    states = [labels["state"] for part, labels, _ in parts if part == "rl_run_state"]
    values = {part: value for part, _, value in parts}

    def signals(kind: str) -> dict[str, float]:
        return {part.removeprefix(kind): value for part, value in values.items() if part.startswith(kind)}

    def known(metric: str) -> float | None:
        value = values.get(metric, math.nan)
        return value if math.isfinite(value) else None

    def whole(metric: str) -> int | None:
        value = known(metric)
        return None if value is None else int(value)

    summary = RunSummary(
        name.run,
        # Of several nodes that read one run, one that sees it run knows best.
        "running" if "running" in states else next(iter(states), ""),
        next((labels["framework"] for labels in infos if labels.get("framework")), ""),
        whole("rl_step"),
        whole("rl_total_steps"),
        None,
        whole("rl_restarts_total") or 0,
        whole("rl_resumes_total") or 0,
        latest=signals(_LATEST),
        usual=signals(_USUAL),
        means=signals(_MEAN),
        cluster=name.cluster,
        nodes=tuple(sorted({labels.get("node", "") for labels in infos})),
        is_remote=True,
    )
    marks = (
        (at, labels.get("note", "")) for part, labels, at in parts if part == "rl_run_mark_timestamp_seconds"
    )
    start, last = known("rl_run_start_timestamp_seconds"), known("rl_last_step_timestamp_seconds")
    return AgentRun(summary, start, last, tuple(marks), now)


def remembered(
    before: Mapping[RunId, AgentRun], found: Mapping[RunId, AgentRun], now: float
) -> dict[RunId, AgentRun]:
    """Return the runs found, and those lost while running: their node, agent or line is down."""
    lost = {
        name: replace(run, last_known=replace(run.last_known, arrives=False))
        for name, run in before.items()
        if name not in found and run.last_known.state == "running" and now - run.seen < KEPT_SECONDS
    }
    latest = sorted(lost, key=lambda name: lost[name].seen)[-MOST_RUNS:]
    return {**found, **{name: lost[name] for name in latest}}


def drawn(panels: Panels) -> tuple[Line, ...]:
    """Return the curves that are asked for, since no log of these runs is read here."""
    return tuple(line for line in panels.lines if line.promql)


def snapshot(
    panels: Panels, curves: Mapping[Query, Sequence[Point]], steps: Mapping[float, float]
) -> HistorySnapshot:
    """Return the history of a run from what Prometheus has of it."""
    logged: dict[str, Extremes] = {}
    means: dict[str, Extremes] = {}
    for line in drawn(panels):
        if points := curves.get(line):
            (means if line.smoothed else logged)[line.signal] = _curve(points)
    return HistorySnapshot(logged, means, tuple(_rows(panels, curves, steps)), tuple(_restarts(steps)))


def _curve(points: Sequence[Point]) -> Extremes:
    made, before = Extremes(), -1
    for step, value in points:
        if step < before:
            made.breaks()
        made.add(step, value)
        before = step
    return made


def _rows(
    panels: Panels, curves: Mapping[Query, Sequence[Point]], steps: Mapping[float, float]
) -> Iterator[Row]:
    """Yield the last steps that were asked for: between two of them there may be others."""
    begun = {int(step): at for at, step in reversed(tuple(steps.items()))}
    logged = {
        line.signal: dict(curves.get(line, ()))
        for line in panels.lines
        if not line.smoothed and curves.get(line)
    }
    for step in sorted(begun, key=begun.__getitem__)[-ROWS:]:
        values = {signal: values[step] for signal, values in logged.items() if step in values}
        yield Row(step, begun[step], values)


def _restarts(steps: Mapping[float, float]) -> Iterator[int]:
    before = -1
    for step in map(int, steps.values()):
        if step < before:
            yield step
        before = step


def marks(run: AgentRun, steps: Mapping[float, float]) -> Iterator[Mark]:
    """Yield operators' marks at the steps that the run had then."""
    times, at_steps = list(steps), list(steps.values())
    for at, note in run.marks:
        if place := bisect_right(times, at):
            yield Mark(int(at_steps[place - 1]), f"mark: {note}")
