"""Runs in Prometheus: firing alerts, current limits and GPUs, and the history of each run."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson

from exporter import credentials
from exporter.alert_labels import ABOUT, ONSET, ONSET_STEP
from exporter.runs.files.notice import Once
from exporter.runs.model.history import Point
from exporter.runs.overview import agents
from exporter.runs.overview.agents import AgentRun
from exporter.runs.overview.charts import rank
from exporter.runs.overview.models import Episode, Firing, RunId
from exporter.runs.overview.panels import RUN, Query, book_of
from exporter.runs.pages import web
from exporter.runs.pages.web import Poller, PollError
from exporter.secret_shapes import masked_url

logger = logging.getLogger(__name__)
LARGEST_ANSWER = 2 * 1024 * 1024  # bytes; as Python's objects they take ten times as much
ANSWER_SECONDS = 5.0
CURVE_POINTS = 200  # of a curve of a run's past
EPISODE_POINTS = 1000  # at which it is known whether an alert fired: it may be over within minutes
FINEST, COARSEST = 5.0, 300.0  # seconds between two of these points
MOST_POINTS = 10_000  # Prometheus answers at most 11,000 points a series
_CURVE = "curve"  # the label that distinguishes the parts of a union
_OF_RUN = ("run", "cluster", "alertname", "severity")
_TOLD_APART_BY = ("alertname", "severity", *ABOUT)
_ONSETS = " or ".join(
    f'label_replace(max by ({", ".join(labels)}) ({metric}), "{_CURVE}", "{metric}", "", "")'
    for metric, labels in ((ONSET, _TOLD_APART_BY), (ONSET_STEP, _OF_RUN))
)
"""The onset of each alert, and its step, in one answer."""

_BOOK = "alert_text_info"
STEPS = Query("step", "step", f"max(rl_step{{{RUN}}})")
INTERVAL_SECONDS = 5.0
LONGEST_PAUSE = 30.0  # between two rounds while Prometheus does not answer
VIEWED_SECONDS = 300.0
"""So long after someone viewed a run its past is asked for in each round; of the others, one in turn."""
MOST_VIEWED = 8
MOST_KEPT = 24
"""Pasts of agents' runs that are in memory: those viewed last. Each has some hundred kB of curves."""
PAST_SECONDS = 5.0
"""So long a round goes on to the next run's past, so that alerts do not wait for the pasts of all."""


class Span(NamedTuple):
    """The time over which a past is asked for; ``curves`` only of a run that someone views."""

    run: RunId
    start: float
    end: float
    curves: tuple[Query, ...] = ()

    def interval(self, points: int) -> float:
        """Seconds between two points, for a number of points."""
        return max(FINEST, (self.end - self.start) / points)


class Past(NamedTuple):
    """A run's past: alerts, and curves and limits by step; and its step at each time that was asked for."""

    episodes: tuple[Episode, ...]
    curves: Mapping[Query, tuple[Point, ...]]
    steps: Mapping[float, float] = MappingProxyType({})


NO_PAST = Past((), {})


class Client:
    """The API of a Prometheus. Each method raises ``PollError`` without a valid answer."""

    def __init__(
        self, url: str, *, clusters: bool = False, login: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self.name, self._login = masked_url(url), login
        self._clusters = clusters
        self._url = url.rstrip("/")

    def firing(self) -> dict[RunId, tuple[Firing, ...]]:
        """The alerts that fire now, by run, the worst first; those about no run under the empty name."""
        found: dict[RunId, list[Firing]] = {}
        with self._valid():
            active = self._get("alerts", {})["alerts"]
            onsets = self._get("query", {"query": _ONSETS})["result"] if active else []
            known = {_identity(each["metric"]): float(each["value"][1]) for each in onsets}
            texts = self._get("query", {"query": _BOOK})["result"] if active else []
            book = {each["metric"]["alertname"]: book_of(each["metric"]) for each in texts}
            for alert in active:
                if alert["state"] == "firing":
                    found.setdefault(self._about(alert["labels"]), []).append(
                        replace(_firing(alert, known), book=book.get(alert["labels"]["alertname"], ()))
                    )
        return {
            run: tuple(sorted(alerts, key=lambda alert: (rank(alert.severity), alert.name)))
            for run, alerts in found.items()
        }

    def _about(self, labels: Mapping[str, str]) -> RunId:
        run = labels.get("run", "")
        return RunId(run, labels.get("cluster", "")) if run and self._clusters else RunId(run)

    def now(self, queries: Sequence[Query]) -> dict[Query, dict[RunId, float]]:
        """The values of curves and limits by run; those of no run under the empty name."""
        values: dict[Query, dict[RunId, float]] = {query: {} for query in queries}
        with self._valid():
            for series in self._get("query", {"query": _union(queries)})["result"] if queries else ():
                labels, value = series["metric"], float(series["value"][1])
                if math.isfinite(value):
                    values[queries[int(labels[_CURVE])]][self._about(labels)] = value
        return values

    def agents(self, promql: str) -> tuple[dict[RunId, AgentRun], int]:
        """The runs of agents by an expression of ``agents.asked``, and how many there are."""
        with self._valid():
            return agents.read(self._get("query", {"query": promql})["result"], time.time())

    def past(self, span: Span, queries: Sequence[Query]) -> Past:
        """The alerts about a run, and these curves and limits, by its steps."""
        with self._valid():
            curves, steps = self._curves(span, queries) if queries else ({}, {})
            return Past(tuple(self._episodes(span)), curves, steps)

    def _episodes(self, span: Span) -> Iterator[Episode]:
        run = span.run.matchers
        fires = f'max by (run, alertname, severity) (ALERTS{{alertstate="firing",{run}}})'
        promql = (
            f"max by (run) (rl_step{{{run}}}) * on (run) group_right () {fires}"
            f" or label_replace(max by (run, alertname, severity) ({ONSET_STEP}{{{run}}}) and {fires}, "
            f'"{_CURVE}", "{ONSET_STEP}", "", "")'
        )
        every = max(span.interval(MOST_POINTS), min(span.interval(EPISODE_POINTS), COARSEST))
        steps: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
        for series in self._range(promql, span, every):
            labels = series["metric"]
            found = steps.setdefault((labels["alertname"], labels["severity"]), {})
            found[labels.get(_CURVE, "")] = _finite(series["values"])
        for alert, found in steps.items():
            onsets = dict(found.get(ONSET_STEP, ()))
            yield from _split(alert, found.get("", ()), onsets, every, span.end)

    def _curves(
        self, span: Span, queries: Sequence[Query]
    ) -> tuple[dict[Query, tuple[Point, ...]], dict[float, float]]:
        union = _union([*queries, STEPS], span.run)
        found = {
            series["metric"][_CURVE]: dict(_finite(series["values"]))
            for series in self._range(union, span, span.interval(CURVE_POINTS))
        }
        steps = found.pop(str(len(queries)), {})
        curves = {queries[int(index)]: tuple(_by_step(values, steps)) for index, values in found.items()}
        return curves, steps

    def series(
        self, promql: str, span: Span, every: float
    ) -> list[tuple[Mapping[str, str], list[tuple[float, float]]]]:
        """The labels and points (time, value) of an expression over a span, ``every`` so many seconds."""
        with self._valid():
            return [(each["metric"], _finite(each["values"])) for each in self._range(promql, span, every)]

    def _range(self, promql: str, span: Span, every: float) -> list[Any]:
        # In whole milliseconds, and a whole number of steps, so that the last one is at the end.
        step, end = math.ceil(1000 * every), math.floor(1000 * span.end)
        start = end - math.floor(end - 1000 * span.start) // step * step
        times = {"start": start, "end": end, "step": step}
        form = {"query": promql, **{name: f"{at / 1000:.3f}" for name, at in times.items()}}
        result: list[Any] = self._get("query_range", form)["result"]
        return result

    def _get(self, what: str, form: Mapping[str, str]) -> Any:
        body = urlencode(form).encode() if form else None
        try:
            login = self._login()
        except OSError as problem:
            raise PollError(
                f"{problem.filename}, the password file of {self.name}: {problem.strerror}."
            ) from None
        answer = web.get(f"{self._url}/api/v1/{what}", login, ANSWER_SECONDS, body, most=LARGEST_ANSWER)
        return orjson.loads(answer.body)["data"]

    @contextmanager
    def _valid(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, LookupError, TypeError, AttributeError) as problem:
            raise PollError(
                f"{self.name} does not answer like Prometheus ({type(problem).__name__}). "
                "Fix: set the address of a Prometheus, such as http://127.0.0.1:9090."
            ) from None


def _identity(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in (*_TOLD_APART_BY, _CURVE))


def _firing(alert: Mapping[str, Any], onsets: Mapping[tuple[str, ...], float]) -> Firing:
    labels, notes, value = alert["labels"], alert["annotations"], float(alert["value"])
    step = onsets.get(_identity({**_only(labels, _OF_RUN), _CURVE: ONSET_STEP}))
    begun = _seconds(alert["activeAt"])  # until it is recorded
    passed = alert.get("keepFiringSince")  # only of an alert that outlasts its condition
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
        since=onsets.get(_identity({**_only(labels, _TOLD_APART_BY), _CURVE: ONSET}), begun),
        labels=frozenset(labels.items()),
        step=None if step is None else int(step),
        passed=_seconds(passed) if passed else None,
    )


def _seconds(time_: str) -> float:
    """A time to the second, in UTC: Python 3.10 reads no nanoseconds."""
    return datetime.fromisoformat(f"{time_[:19]}+00:00").timestamp()


def _only(labels: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: labels[name] for name in names if name in labels}


def _union(queries: Sequence[Query], run: RunId | None = None) -> str:
    return " or ".join(
        f'label_replace({query.of(run)}, "{_CURVE}", "{index}", "", "")'
        for index, query in enumerate(queries)
    )


def _finite(values: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    points = ((float(at), float(text)) for at, text in values)
    return [(at, value) for at, value in points if math.isfinite(value)]


def _by_step(values: Mapping[float, float], steps: Mapping[float, float]) -> Iterator[Point]:
    """The last value of each step, which may last for many points."""
    points = ((int(steps[at]), value) for at, value in values.items() if at in steps)
    for _, same in groupby(points, key=itemgetter(0)):
        *_, last = same
        yield last


def _split(
    alert: tuple[str, str],
    points: Sequence[tuple[float, float]],
    onsets: Mapping[float, float],
    every: float,
    end: float,
) -> Iterator[Episode]:
    """Points (time, step) of a firing alert as episodes, by the step of the onset at each time."""
    episode: list[tuple[float, float]] = []
    for point in (*points, (math.inf, 0.0)):
        if episode and point[0] - episode[-1][0] > 1.5 * every:
            steps = [int(step) for _, step in episode]
            known = (int(onsets[at]) for at, _ in episode if at in onsets)
            yield Episode(*alert, next(known, min(steps)), max(steps), end - episode[-1][0] < 0.5 * every, "")
            episode = []
        episode.append(point)


@dataclass(frozen=True)
class Answers:
    """The last good answers, by run (``now`` by query), and when they came.

    ``answered`` in seconds since the epoch, ``None`` before the first. ``problem`` says why the last
    request failed, ``gaps`` why that for the past of a run did. ``agents`` are the runs that agents read, of
    ``agents_total``.
    """

    firing: Mapping[RunId, tuple[Firing, ...]] = field(default_factory=dict)
    now: Mapping[Query, Mapping[RunId, float]] = field(default_factory=dict)
    pasts: Mapping[RunId, Past] = field(default_factory=dict)
    gaps: Mapping[RunId, str] = field(default_factory=dict)
    answered: float | None = None
    problem: str | None = None
    agents: Mapping[RunId, AgentRun] = field(default_factory=dict)
    agents_total: int = 0

    def trouble(self, now: float) -> str:
        """Why Prometheus does not answer, and how old its answers are; empty if it does."""
        if self.problem is None or self.answered is None:
            return self.problem or ""
        minutes = max(0.0, now - self.answered) // 60
        age = f"{minutes:.0f} min ago" if minutes else "less than a minute ago"
        return f"Prometheus last answered {age}; alerts are as they were then. {self.problem}"

    def gap(self, run: RunId, *, is_remote: bool = False) -> str:
        """What of a run's past is unknown, and why; empty if nothing is."""
        if run not in self.gaps:
            return ""
        what = "alerts, limits and curves" if is_remote else "alerts, limits and GPU curves"
        how = "as they were last known" if run in self.pasts else "missing"
        return f"Past {what} of this run are {how}. {self.gaps[run]}"


NO_URL = Answers(
    problem="No Prometheus is configured (--prometheus-url): alerts, limits and GPUs are unknown."
)


class Prometheus(Poller):
    """Asks a Prometheus, and has its last good ``answers``; ``errors`` counts failed requests.

    ``judged`` gives the queries of present values, of all runs; ``drawn`` those of the past, of one of the
    ``spans`` after another; ``remote`` the PromQL of agents' runs, over a time or of now.
    """

    def __init__(
        self,
        url: str | None,
        judged: Callable[[], Sequence[Query]],
        drawn: Callable[[], Sequence[Query]],
        spans: Callable[[], Sequence[Span]],
        remote: Callable[[str], str] | None = None,
        *,
        password_file: Path | None = None,
    ) -> None:
        super().__init__("prometheus", enabled=bool(url))
        self.errors = 0
        self.answers = Answers() if url else NO_URL
        login = partial(credentials.login, password_file)
        self._client = Client(url or "", clusters=remote is not None, login=login)
        self._remote = remote
        self._judged, self._drawn, self._spans = judged, drawn, spans
        self._once = Once(logger)
        self._viewed: dict[RunId, float] = {}
        self._asked: dict[RunId, float] = {}
        self._pause = INTERVAL_SECONDS

    def view(self, run: RunId) -> Past:
        """Return a run's past as far as it is known; it is asked for again at once, and for some minutes."""
        is_new = time.monotonic() - self._viewed.get(run, 0.0) > VIEWED_SECONDS
        self._viewed[run] = time.monotonic()
        if is_new and self.answers.problem is None:
            self.wake()
        return self.answers.pasts.get(run, NO_PAST)

    def poll(self) -> float:
        """Ask for alerts and present values, then for the pasts that are due."""
        try:
            firing, now = self._client.firing(), self._client.now(self._judged())
            remote, total = self._agents()
            self.answers = replace(
                self.answers,
                firing=firing,
                now=now,
                agents=remote,
                agents_total=total,
                answered=time.time(),
                problem=None,
            )
            drawn, spans = self._drawn(), {span.run: span for span in self._spans()}
            kept = self._kept(spans)
            pasts = {run: past for run, past in self.answers.pasts.items() if run in kept}
            gaps = {run: why for run, why in self.answers.gaps.items() if run in kept}
            self.answers = replace(self.answers, pasts=pasts, gaps=gaps)
            until = time.monotonic() + PAST_SECONDS
            for run in self._due(spans):
                if time.monotonic() < until:
                    self._asked[run] = time.monotonic()
                    self._ask_past(spans[run], drawn)
        except Exception as fault:  # noqa: BLE001  (an unforeseen answer must not end the thread)
            reason = self._reason(fault)
            if self.answers.problem is None and not self.stopped:
                logger.warning("%s Alerts are shown as they were last known.", reason)
            self.errors += 1
            self.answers = replace(self.answers, problem=reason)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        else:
            self._pause = INTERVAL_SECONDS
        return self._pause

    def _agents(self) -> tuple[Mapping[RunId, AgentRun], int]:
        if self._remote is None:
            return {}, 0
        before = self.answers.agents
        if self.answers.answered is None:
            before, _ = self._client.agents(self._remote(agents.AT_FIRST))
        found, total = self._client.agents(self._remote(""))
        return agents.remembered(before, found, time.time()), total

    def _kept(self, spans: Mapping[RunId, Span]) -> set[RunId]:
        """The runs whose pasts stay in memory."""
        viewed = sorted((at, run) for run, at in self._viewed.copy().items())[-MOST_KEPT:]
        kept = {run for _, run in viewed}
        return {run for run, span in spans.items() if not span.curves or run in kept}

    def _ask_past(self, span: Span, drawn: Sequence[Query]) -> None:
        answers = self.answers
        try:
            past = self._client.past(span, (*drawn, *span.curves))
        except Exception as fault:  # noqa: BLE001  (the pasts of other runs, and alerts, go on)
            reason = self._reason(fault)
            if not self.stopped:
                self._once.warn("past", f"{reason} Pages of runs show the last known history, or none.")
            self.errors += 1
            self.answers = replace(answers, gaps={**answers.gaps, span.run: reason})
        else:
            gaps = {run: why for run, why in answers.gaps.items() if run != span.run}
            pasts = {**answers.pasts, span.run: past}
            self.answers = replace(answers, pasts=pasts, gaps=gaps, answered=time.time())

    def _due(self, spans: Mapping[RunId, Span]) -> list[RunId]:
        """The viewed runs, and one of the others; each in turn, should time not suffice for all."""
        now = time.monotonic()
        for run, at in self._viewed.copy().items():  # other threads add to it meanwhile
            if now - at >= VIEWED_SECONDS:
                self._viewed.pop(run, None)
        self._asked = {run: at for run, at in self._asked.items() if run in spans}
        known = {run: at for run, at in self._viewed.copy().items() if run in spans}
        viewed = sorted(known, key=known.__getitem__)[-MOST_VIEWED:]
        unseen = {run for run, span in spans.items() if not span.curves} - set(viewed)
        others = sorted(unseen, key=lambda run: self._asked.get(run, 0.0))
        return [*sorted(viewed, key=lambda run: self._asked.get(run, 0.0)), *others[:1]]

    def _reason(self, fault: Exception) -> str:
        if isinstance(fault, PollError):
            return str(fault)
        return f"{self._client.name}: {type(fault).__name__}, an internal error of Stepwatch."
