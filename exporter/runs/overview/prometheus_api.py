"""What Prometheus is asked, and what its answers say: the alerts that fire, and the past of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson

from exporter.drawing.severity import rank
from exporter.http.exposition import escape
from exporter.runs.overview.models import Episode, Firing, Point
from exporter.runs.overview.panels import RUN, Asked
from exporter.runs.remote import web
from exporter.runs.remote.web import PollError
from exporter.secret_shapes import masked_url

LARGEST_ANSWER = 2 * 1024 * 1024
"""Bytes; as Python's objects they take ten times as much."""

SECONDS = 5.0
"""That an answer may take."""

CURVE_POINTS = 200
"""Of a curve that Prometheus is asked for."""

EPISODE_POINTS = 1000
"""Looks at whether an alert fired: it may be over within minutes."""

FINEST, COARSEST = 5.0, 300.0
"""Seconds between two looks at whether an alert fired: each stays for twice the longest."""

MOST_POINTS = 10_000
"""Prometheus answers at most 11,000 points a series."""

_CURVE = "curve"

STEPS = Asked("step", "step", f"max(rl_step{{{RUN}}})")


class Span(NamedTuple):
    """From when to when a run is looked at."""

    run: str
    start: float
    end: float

    def every(self, points: int) -> float:
        """Seconds between two of so many points."""
        return max(FINEST, (self.end - self.start) / points)


class Past(NamedTuple):
    """What Prometheus knows of a run's past: alerts, and curves and limits by step."""

    episodes: tuple[Episode, ...]
    curves: Mapping[Asked, tuple[Point, ...]]


class Questions:
    """Asks a Prometheus.

    All of these raise ``PollError`` if there is no answer, or none that can be read.
    """

    def __init__(self, url: str) -> None:
        self.name = masked_url(url)
        self._url = url.rstrip("/")

    def firing(self) -> dict[str, tuple[Firing, ...]]:
        """The alerts that fire now, by run, the worst first; those about no run under the empty name."""
        found: dict[str, list[Firing]] = {}
        with self._understood():
            for alert in self._asked("alerts", {})["alerts"]:
                if alert["state"] == "firing":
                    found.setdefault(alert["labels"].get("run", ""), []).append(_firing(alert))
        return {run: tuple(sorted(alerts, key=_urgency)) for run, alerts in found.items()}

    def now(self, asked: Sequence[Asked]) -> dict[Asked, dict[str, float]]:
        """The values of curves and limits by run; those of no run under the empty name."""
        values: dict[Asked, dict[str, float]] = {each: {} for each in asked}
        with self._understood():
            for each in self._asked("query", {"query": _union(asked)})["result"] if asked else ():
                labels, value = each["metric"], float(each["value"][1])
                if math.isfinite(value):
                    values[asked[int(labels[_CURVE])]][labels.get("run", "")] = value
        return values

    def past(self, span: Span, asked: Sequence[Asked]) -> Past:
        """When alerts fired for a run, and what those curves and limits were meanwhile, by its steps."""
        with self._understood():
            return Past(tuple(self._episodes(span)), self._curves(span, asked) if asked else {})

    def _episodes(self, span: Span) -> Iterator[Episode]:
        run = f'run="{escape(span.run)}"'
        promql = (
            f"max by (run) (rl_step{{{run}}}) * on (run) group_right () "
            f'max by (run, alertname, severity) (ALERTS{{alertstate="firing",{run}}})'
        )
        every = max(span.every(MOST_POINTS), min(span.every(EPISODE_POINTS), COARSEST))
        for series in self._over(promql, span, every):
            labels, values = series["metric"], _numbers(series["values"])
            yield from _split(labels["alertname"], labels["severity"], values, every, span.end)

    def _curves(self, span: Span, asked: Sequence[Asked]) -> dict[Asked, tuple[Point, ...]]:
        query = _union([*asked, STEPS], span.run)
        found = {
            series["metric"][_CURVE]: dict(_numbers(series["values"]))
            for series in self._over(query, span, span.every(CURVE_POINTS))
        }
        at = found.pop(str(len(asked)), {})
        return {asked[int(index)]: _by_step(values, at) for index, values in found.items()}

    def _over(self, promql: str, span: Span, every: float) -> list[Any]:
        # In whole milliseconds, and a whole number of looks, so that the last one is at the end.
        step, end = math.ceil(1000 * every), math.floor(1000 * span.end)
        start = end - math.floor(end - 1000 * span.start) // step * step
        times = {"start": start, "end": end, "step": step}
        form = {"query": promql, **{name: f"{time / 1000:.3f}" for name, time in times.items()}}
        result: list[Any] = self._asked("query_range", form)["result"]
        return result

    def _asked(self, what: str, form: Mapping[str, str]) -> Any:
        body = urlencode(form).encode() if form else None
        answer = web.get(f"{self._url}/api/v1/{what}", {}, SECONDS, body, most=LARGEST_ANSWER)
        return orjson.loads(answer.body)["data"]

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, LookupError, TypeError, AttributeError) as problem:
            raise PollError(
                f"{self.name} answers in another way than Prometheus does ({type(problem).__name__}). "
                "Fix: name the address of a Prometheus, such as http://127.0.0.1:9090."
            ) from None


def _firing(alert: Mapping[str, Any]) -> Firing:
    labels, notes, value = alert["labels"], alert["annotations"], float(alert["value"])
    return Firing(
        name=labels["alertname"],
        severity=labels.get("severity", ""),
        topic=labels.get("topic", ""),
        summary=notes.get("summary", ""),
        description=notes.get("description", ""),
        action=notes.get("action", ""),
        runbook=notes.get("runbook_url", ""),
        dashboard=notes.get("dashboard_url", ""),
        value=value if math.isfinite(value) else None,
        # To the second, in UTC: Python 3.10 reads no nanoseconds.
        since=datetime.fromisoformat(f"{alert['activeAt'][:19]}+00:00").timestamp(),
        labels=frozenset(labels.items()),
    )


def _urgency(alert: Firing) -> tuple[int, str]:
    return rank(alert.severity), alert.name


def _union(asked: Sequence[Asked], run: str | None = None) -> str:
    """All of them in one query, distinguished by a label."""
    return " or ".join(
        f'label_replace({each.of(run)}, "{_CURVE}", "{index}", "", "")' for index, each in enumerate(asked)
    )


def _numbers(values: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    """The times and what was there, where it is a number."""
    read = ((float(time), float(text)) for time, text in values)
    return [(time, value) for time, value in read if math.isfinite(value)]


def _split(
    name: str, severity: str, steps: Sequence[tuple[float, float]], every: float, end: float
) -> Iterator[Episode]:
    """The times at which an alert fired, as episodes: from one step to another."""
    episode: list[tuple[float, float]] = []
    for point in (*steps, (math.inf, 0.0)):
        if episode and point[0] - episode[-1][0] > 1.5 * every:
            made = [int(step) for _, step in episode]
            yield Episode(name, severity, min(made), max(made), end - episode[-1][0] < 0.5 * every, "")
            episode = []
        episode.append(point)


def _by_step(values: Mapping[float, float], steps: Mapping[float, float]) -> tuple[Point, ...]:
    """What was there at the last look at each step; a step may last for many looks."""
    points: list[Point] = []
    for time, value in values.items():
        if time in steps:
            if points and points[-1][0] == int(steps[time]):
                points.pop()
            points.append((int(steps[time]), value))
    return tuple(points)
