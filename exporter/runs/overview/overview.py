"""What is shown of the runs: any thread may ask, and no answer waits for a disk or the network."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median

from exporter.http.exposition import Metric, own
from exporter.runs.model.history import SMOOTHED, HistorySnapshot, departures
from exporter.runs.overview import agents
from exporter.runs.overview.charts import Band, Chart, Curve, Mark, curve, rank
from exporter.runs.overview.health import CORES, GPU, GPU_OF_RUN, healths
from exporter.runs.overview.models import (
    STALLED,
    Episode,
    Firing,
    Health,
    Omitted,
    RunAction,
    RunDetails,
    RunId,
    RunSummary,
    Series,
    SeriesLimit,
    causes_first,
    leading_onset,
)
from exporter.runs.overview.panels import Limit, Line, Panel, PanelFile, Panels, Query
from exporter.runs.overview.pollers import Actions, Silences
from exporter.runs.overview.prometheus import NO_PAST, Past, Prometheus, Span
from exporter.runs.serve.views import View
from exporter.runs.signals.unmapped import ENOUGH_RECORDS
from exporter.runs.stats.catalogue import DEPARTURE_DEVIATIONS, DEPARTURE_STEP
from exporter.runs.stats.departure import Departure
from exporter.runs.stats.statistics import is_measured

Views = Callable[[], AbstractContextManager[Collection[View]]]
"""Gives the runs that are shown, which do not change while the context lasts."""
MONTH = 31 * 24 * 3600.0  # no further back is Prometheus asked about a run
FEW = 3  # values whose median is judged where there is no smoothed curve: rules ask for as many


class Overview:
    """Summaries and histories of all runs, with what Prometheus and Alertmanager say, and faults."""

    def __init__(
        self,
        views: Views,
        file: PanelFile,
        url: str | None,
        omitted: Callable[[], Omitted] = Omitted,
        *,
        faults: Callable[[], tuple[str, ...]] = tuple,
        alertmanager: str | None = None,
        password_file: Path | None = None,
        external_labels: Mapping[str, str] | None = None,
        actions: str | None = None,
        remote: bool = False,
    ) -> None:
        self._views, self._file, self._omitted, self._remote = views, file, omitted, remote
        self._faults = faults
        self._prometheus = Prometheus(
            url,
            self._judged,
            self._charted,
            self._spans,
            self._of_agents if remote else None,
            password_file=password_file,
        )
        self._silences = Silences(alertmanager, external_labels, password_file)
        self._actions = Actions(actions)
        self._departed: dict[tuple[str, int, int, int], tuple[tuple[str, Departure], ...]] = {}
        self._pollers = (self._prometheus, self._silences, self._actions, file)

    def start(self) -> None:
        """Begin to ask other programs, and to look for a new file of panels, in the background."""
        for poller in self._pollers:
            poller.start()

    def stop(self) -> None:
        """Stop what ``start`` began."""
        for poller in self._pollers:
            poller.stop()

    @property
    def prometheus(self) -> str:
        """Why Prometheus does not report alerts; empty if it does."""
        return self._prometheus.answers.trouble(time.time())

    @property
    def faults(self) -> tuple[str, ...]:
        """What keeps the stack from alerting, a text for each fault."""
        return self._faults()

    @property
    def actions(self) -> tuple[RunAction, ...]:
        """What is and was done about runs, the latest first."""
        return self._actions.found

    @property
    def omitted(self) -> Omitted:
        """What is not shown."""
        answers = self._prometheus.answers
        arriving = sum(run.last_known.arrives for run in answers.agents.values())
        return replace(self._omitted(), remote=max(0, answers.agents_total - arriving))

    def samples(self) -> Iterator[Metric]:
        """Metrics about Prometheus' answers and the file of panels."""
        answered = self._prometheus.answers.answered
        yield own(
            "prometheus_errors_total", "Queries that Prometheus did not answer.", self._prometheus.errors
        )
        yield own(
            "prometheus_answered_timestamp_seconds",
            "When Prometheus last answered.",
            [] if answered is None else answered,
        )
        yield own("panels_errors_total", "Invalid files of panels.", self._file.errors)
        yield from self._departures()

    def _departures(self) -> Iterator[Metric]:
        """Yield what moved first in each run that has an alert; a run is looked at again when it logs."""
        known, self._departed = self._departed, {}
        with self._views() as views:
            for view in views:
                onset = leading_onset(self._firing(self._id(view)))
                if onset is not None:
                    key = view.name, view.run.serial, view.run.version, onset
                    found = known.get(key)
                    self._departed[key] = view.run.history.departures(onset) if found is None else found
        left = [
            ({"run": key[0], "signal": signal}, away)
            for key, moved in self._departed.items()
            for signal, away in moved
        ]
        yield DEPARTURE_STEP, [(labels, away.step) for labels, away in left]
        yield DEPARTURE_DEVIATIONS, [(labels, away.deviations) for labels, away in left]

    def runs(self) -> list[RunSummary]:
        """All runs."""
        with self._views() as views:
            found = [self._summary(view) for view in views]
        own, now = {run.id for run in found}, time.time()
        remote = self._prometheus.answers.agents
        found += [run.summary(now) for name, run in remote.items() if name not in own]
        return [self._judge(run) for run in found]

    def ids(self) -> list[RunId]:
        """What identifies each of these."""
        with self._views() as views:
            own = [self._id(view) for view in views]
        return list(dict.fromkeys((*own, *self._prometheus.answers.agents)))

    def others(self) -> tuple[Firing, ...]:
        """Critical alerts and warnings about no run, or (on a hub) about runs that Prometheus lost."""
        shown = set(self.ids())
        book = self._file.panels.notices.book
        found = [
            replace(
                alert,
                summary=f"{about.run}: {alert.summary}" if about.run else alert.summary,
                book=alert.book or book.get(alert.name, ()),
            )
            for about in self._prometheus.answers.firing
            if about not in shown
            for alert in self._firing(about)
            if alert.severity in ("critical", "warning")
        ]
        return tuple(causes_first(found))

    @property
    def notifies(self) -> bool:
        """Whether a receiver is configured, as far as that is known."""
        return self._file.panels.notices.receivers

    def _firing(self, run: RunId) -> tuple[Firing, ...]:
        """The alerts about a run, or about none, with their silences and ends."""
        keep = self._file.panels.notices.keep_firing
        return tuple(
            alert if alert.passed is None or keep is None else replace(alert, ends=alert.passed + keep)
            for alert in self._silences.mark(self._prometheus.answers.firing.get(run, ()))
        )

    def run(self, name: RunId) -> RunDetails | None:
        """A run with its history; ``None`` if there is no such run."""
        found = self._history(name, self._prometheus.view(name))
        if found is None:
            return None
        run, history = found
        answers = self._prometheus.answers
        firing = answers.firing.get(name, ())
        episodes = _episodes(history.past, firing, run.step)
        onset = leading_onset(self._firing(name))
        judged = self._with_firing(run, healths(run, history.panels, answers, history.since))
        actions = [action for action in self.actions if action.run == name.run]
        return RunDetails(
            judged,
            history.charts(episodes, actions),
            episodes,
            history.snapshot.rows,
            None if onset is None else departures(history.snapshot.curves, onset),
            answers.gap(name, is_remote=run.is_remote),
            awaited=run.is_remote and name not in answers.pasts and name not in answers.gaps,
        )

    def series(self, name: RunId, signal: str) -> Series | None:
        """A signal of a run; ``None`` if there is no such run, or no history of the signal."""
        found = self._history(name, self._prometheus.view(name))
        return found[1].series(signal) if found else None

    def _judge(self, run: RunSummary) -> RunSummary:
        answers = self._prometheus.answers
        # The history is needed only where a limit is passed.
        history = cache(lambda: self._history(run.id, answers.pasts.get(run.id, NO_PAST)))

        def since(signal: str, smooth: Line | None, limit: Limit) -> int | None:
            found = history()
            return found[1].since(signal, smooth, limit) if found else None

        return self._with_firing(run, healths(run, self._file.panels, answers, since))

    def _with_firing(self, run: RunSummary, found: tuple[Health, ...]) -> RunSummary:
        firing = self._firing(run.id)
        stalled = run.state == "running" and any(alert.name == STALLED for alert in firing)
        return replace(run, healths=found, firing=firing, state="stalled" if stalled else run.state)

    def _history(self, name: RunId, past: Past) -> tuple[RunSummary, RunHistory] | None:
        panels = self._file.panels
        with self._views() as views:
            for view in views:
                if self._id(view) == name:
                    marks = tuple(Mark(each.step, f"mark: {each.note}") for each in view.run.marks.all)
                    return self._summary(view), RunHistory(view.run.history.snapshot(), panels, past, marks)
        run = self._prometheus.answers.agents.get(name)
        if run is None:
            return None
        known = agents.snapshot(panels, past.curves, past.steps)
        marks = tuple(agents.marks(run, past.steps))
        return run.summary(time.time()), RunHistory(known, panels, past, marks)

    def _id(self, view: View) -> RunId:
        return RunId(view.name, "" if self._remote else None)

    def _summary(self, view: View) -> RunSummary:
        name = self._id(view)
        read = self._prometheus.answers.agents.get(name)
        return replace(summary(view), cluster=name.cluster, nodes=read.last_known.nodes if read else ())

    def _judged(self) -> tuple[Query, ...]:
        panels, core = self._file.panels, {each.signal for each in CORES}
        gpus = (GPU_OF_RUN,) if self._remote else ()
        return (*panels.queries, *(limit for limit in panels.limits if limit.signal in core), *gpus)

    def _of_agents(self, window: str) -> str:
        return agents.asked(self._file.panels, (each.signal for each in CORES if each.signal != GPU), window)

    def _charted(self) -> tuple[Query, ...]:
        return (*self._file.panels.queries, *self._file.panels.limits)

    def _spans(self) -> list[Span]:
        now = time.time()
        with self._views() as views:
            begun = {self._id(view): view.run.times.start for view in views}
        spans = [
            Span(name, max(start, now - MONTH), now) for name, start in begun.items() if start is not None
        ]
        curves = agents.drawn(self._file.panels)
        return spans + [
            Span(name, max(run.start, now - MONTH), now, curves)
            for name, run in self._prometheus.answers.agents.items()
            if name not in begun and run.start is not None
        ]


def summary(view: View) -> RunSummary:
    """The run as it is now, without what others say of it; to be made while it does not change."""
    run = view.run
    logged = {name: found for name, found in run.statistics.items() if is_measured(name, run.statistics)}
    usual = {name: found.over(median, FEW, 1) for name, found in logged.items()}
    means = {name: logged[name].mean() for name in SMOOTHED & logged.keys()}
    return RunSummary(
        view.name,
        view.state,
        run.reading.framework,
        run.progress.step if run.progress.step >= 0 else None,
        run.total,
        None if run.times.last is None else max(0.0, time.time() - run.times.last),
        run.restarts,
        run.resumes,
        latest={name: value for name, value in run.latest.items() if is_measured(name, run.statistics)},
        usual={name: value for name, value in usual.items() if value is not None},
        means={name: value for name, value in means.items() if value is not None},
        candidates=run.candidates() if run.records >= ENOUGH_RECORDS else (),
        log=view.launch.log if view.launch else "",
    )


def _episodes(past: Past, firing: tuple[Firing, ...], step: int | None) -> tuple[Episode, ...]:
    """Those of the past; alerts that fire now last until the present step, and give their summaries."""
    summaries = {(alert.name, alert.severity): alert.summary for alert in firing}
    found = [
        replace(each, summary=summaries[each.name, each.severity], last_step=max(each.last_step, step or 0))
        if each.firing and (each.name, each.severity) in summaries
        else replace(each, firing=False)
        for each in past.episodes
    ]
    known = {(each.name, each.severity) for each in found if each.firing}
    new = [
        Episode(
            alert.name,
            alert.severity,
            step if alert.step is None else alert.step,
            step,
            firing=True,
            summary=alert.summary,
        )
        for alert in firing
        if (alert.name, alert.severity) not in known and step is not None
    ]
    return tuple(sorted([*found, *new], key=lambda each: (each.first_step, each.name)))


@dataclass(frozen=True)
class RunHistory:
    """The history of a run from the exporter and Prometheus, and the panels that show it."""

    snapshot: HistorySnapshot
    panels: Panels
    past: Past
    marks: tuple[Mark, ...] = ()

    def charts(self, episodes: Sequence[Episode], actions: Sequence[RunAction] = ()) -> tuple[Chart, ...]:
        """The panels that have a curve, those with an alert that fires first."""
        happened = self._happened(actions)
        drawn = [(panel, curves) for panel in self.panels.panels if (curves := self._curves(panel))]
        shown = frozenset().union(*(panel.signals for panel, _ in drawn))
        steps = [step for _, curves in drawn for each in curves for piece in each.pieces for step, _ in piece]
        charts = []
        for panel, curves in drawn:
            mine = [each for each in episodes if self._concerns(each, panel, shown)]
            chart = Chart(
                panel.title,
                panel.description,
                panel.unit,
                panel.low,
                panel.high,
                min(steps),
                max(steps),
                curves,
                self._limits(panel),
                tuple(Band(each.name, each.severity, each.first_step, each.last_step) for each in mine),
                happened,
            )
            charts.append((not any(each.firing for each in mine), chart))
        return tuple(chart for _, chart in sorted(charts, key=lambda each: each[0]))

    def _happened(self, actions: Sequence[RunAction]) -> tuple[Mark, ...]:
        """Operators' marks, restarts from a checkpoint, and actions, by step."""
        done = []
        for action in actions:
            known = [step for at, step in self.past.steps.items() if at <= action.opened]
            if known:
                done.append(Mark(int(known[-1]), f"action: {action.steps} ({action.state})"))
        restarts = (Mark(step, "started again") for step in self.snapshot.restarts)
        return tuple(sorted((*self.marks, *restarts, *done), key=lambda mark: mark.step))

    def series(self, signal: str) -> Series | None:
        """A signal in one, breaks and all, with its limits; ``None`` without a history."""
        panel = self.panels.of(signal)
        if signal == GPU:
            queries = (query for query in self.panels.queries if query.signal == GPU)
            points = next((self.past.curves.get(query, ()) for query in queries), ()) or None
        else:
            logged = self.snapshot.curves.get(signal)
            points = None if logged is None else tuple(logged.series())
        if points is None:
            return None
        limits = tuple(
            SeriesLimit(limit.name, limit.alert, limit.severity, limit.side, limit.alone, at)
            for limit in sorted(panel.limits if panel else (), key=lambda limit: rank(limit.severity))
            if limit.signal == signal and (at := self.past.curves.get(limit))
        )
        return Series(signal, panel.unit if panel else "percentunit", points, limits)

    def since(self, signal: str, smooth: Line | None, limit: Limit) -> int | None:
        """The step from which on the signal is beyond the limit; ``None`` if it is not, or it is unknown."""
        bounds = sorted(dict(self.past.curves.get(limit, ())).items())
        logged = (self.snapshot.means if smooth else self.snapshot.curves).get(signal)
        points = [point for piece in logged.pieces() for point in piece] if logged else []
        steps, begun = [step for step, _ in bounds], None
        for step, value in reversed(points):
            if not steps or step < steps[0]:
                break
            at = bounds[min(bisect_left(steps, step), len(bounds) - 1)][1]
            if not limit.is_passed(value, at):
                break
            begun = step
        return begun

    def _curves(self, panel: Panel) -> tuple[Curve, ...]:
        own = []
        for line in panel.curves:
            logged = (self.snapshot.means if line.smoothed else self.snapshot.curves).get(line.signal)
            own.append(Curve(line.name, logged.pieces() if logged else ()))
        others = (self._queried(query) for query in panel.queries)
        return tuple(each for each in (*own, *others) if each.pieces)

    def _limits(self, panel: Panel) -> tuple[Curve, ...]:
        """The limits of signals that have a curve."""
        there = {
            *self.snapshot.curves,
            *(query.signal for query in panel.queries if self.past.curves.get(query)),
        }
        drawn = (self._queried(limit, limit.severity) for limit in panel.limits if limit.signal in there)
        return tuple(each for each in drawn if each.pieces)

    def _queried(self, query: Query, severity: str = "") -> Curve:
        points = self.past.curves.get(query, ())
        values = {record: value for record, (_, value) in enumerate(points, 1)}
        return curve(query.name, values, [step for step, _ in points], severity)

    def _concerns(self, episode: Episode, panel: Panel, shown: frozenset[str]) -> bool:
        """Whether to shade an alert in a panel: that of its signals, or each where no panel shows these."""
        if any(limit.alert == episode.name for limit in panel.limits):
            return True
        about = self.panels.about.get(episode.name)
        return about is not None and (bool(panel.signals & about) or not shown & about)
