"""What is shown of the runs: to be asked from any thread, and never waiting for disk or network."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache

from exporter.drawing.severity import rank
from exporter.http.exposition import Family, Sample
from exporter.runs.overview.charts import Draughtsman
from exporter.runs.overview.health import CORES, GPU, healths
from exporter.runs.overview.models import (
    Episode,
    Firing,
    Point,
    RunStory,
    RunSummary,
    Series,
    SeriesLimit,
    Unshown,
)
from exporter.runs.overview.panelfile import PanelFile
from exporter.runs.overview.panels import Asked, Limit, Line, Panel
from exporter.runs.overview.prometheus import NOTHING, Prometheus, Said
from exporter.runs.overview.prometheus_api import Past, Span
from exporter.runs.overview.silences import Silences
from exporter.runs.overview.snapshot import Glance
from exporter.runs.overview.watchdog import Watchdog
from exporter.runs.visible.views import View

Views = Callable[[], AbstractContextManager[Collection[View]]]
"""What is shown now; nothing of it changes while it is looked at."""

MONTH = 31 * 24 * 3600.0
"""No further back is Prometheus asked about a run."""


class Story:
    """Of all runs that are shown.

    Args:
        views: Gives them.
        file: Of panels.
        url: Of the Prometheus that watches them, if there is one.
        unshown: Gives what is not shown.
        watchdog: URL of the watchdog, if there is one.
        alertmanager: URL of the Alertmanager that silences their alerts, if there is one.
    """

    def __init__(
        self,
        views: Views,
        file: PanelFile,
        url: str | None,
        unshown: Callable[[], Unshown] = Unshown,
        *,
        watchdog: str | None = None,
        alertmanager: str | None = None,
    ) -> None:
        self._views, self._file, self._unshown = views, file, unshown
        self._prometheus = Prometheus(url, self._judged, self._charted, self._spans)
        self._watchdog = Watchdog(watchdog)
        self._silences = Silences(alertmanager)
        self._glances: dict[int, tuple[object, Glance]] = {}

    def start(self) -> None:
        """Begin to ask the other parts, and to look for other panels, in the background."""
        self._prometheus.start()
        self._watchdog.start()
        self._silences.start()
        self._file.start()

    def stop(self) -> None:
        """Ask and look no more."""
        self._prometheus.stop()
        self._watchdog.stop()
        self._silences.stop()
        self._file.stop()

    @property
    def prometheus(self) -> str:
        """What keeps Prometheus from reporting alerts, in words; empty if nothing does."""
        return self._prometheus.said.trouble(time.time())

    @property
    def faults(self) -> tuple[str, ...]:
        """What keeps the stack from alerting, in words."""
        return self._watchdog.findings

    @property
    def unshown(self) -> Unshown:
        """What is not among the runs."""
        return self._unshown()

    def samples(self) -> Iterator[tuple[Family, list[Sample]]]:
        """How it goes with Prometheus and with the file of panels, as metrics."""
        answered, asking = self._prometheus.said.answered, self._prometheus.errors
        when: list[Sample] = [] if answered is None else [({}, answered)]
        yield (
            Family("stepwatch_prometheus_errors_total", "counter", "Questions not answered."),
            [({}, asking)],
        )
        yield Family("stepwatch_prometheus_answered_timestamp_seconds", "gauge", "When it last did."), when
        files = self._file.errors
        yield Family("stepwatch_panels_errors_total", "counter", "Files of panels not usable."), [({}, files)]

    def runs(self) -> list[RunSummary]:
        """All runs."""
        said = self._prometheus.said
        return [self._summary(glance, said) for glance in self._look()]

    def others(self) -> tuple[Firing, ...]:
        """Critical alerts and warnings about no run: servers, GPUs, machines, and the stack itself."""
        found = self._silences.mark(self._prometheus.said.firing.get("", ()))
        return tuple(alert for alert in found if alert.severity in ("critical", "warning"))

    def run(self, name: str) -> RunStory | None:
        """One of them; ``None`` if there is none of that name."""
        found = self._looked_at(name)
        if found is None:
            return None
        glance, drawn = found
        said = self._prometheus.said
        episodes = _episodes(drawn.past, said.firing.get(name, ()), glance.step)
        own = healths(glance, drawn.panels, said, drawn.since)
        summary = glance.summary(own, self._silences.mark(said.firing.get(name, ())))
        rows, lack = drawn.kept.rows, said.lack(name)
        return RunStory(summary, drawn.charts(episodes), episodes, rows, lack, glance.candidates)

    def series(self, name: str, signal: str) -> Series | None:
        """A signal of a run; ``None`` if there is no such run, or nothing is kept of the signal."""
        found = self._looked_at(name)
        if found is None:
            return None
        drawn = found[1]
        points = (_of_gpus(drawn) or None) if signal == GPU else drawn.series(signal)
        if points is None:
            return None
        panel = drawn.panels.of(signal)
        limits = _limits(drawn, panel, signal) if panel else ()
        return Series(signal, panel.unit if panel else "percentunit", points, tuple(limits))

    def _summary(self, glance: Glance, said: Said) -> RunSummary:
        # Its whole history, and only where a limit is passed.
        drawn = cache(lambda: self._drawn(glance.name, said.pasts.get(glance.name, NOTHING)))

        def since(signal: str, smooth: Line | None, limit: Limit) -> int | None:
            found = drawn()
            return found[1].since(signal, smooth, limit) if found else None

        own = healths(glance, self._file.panels, said, since)
        return glance.summary(own, self._silences.mark(said.firing.get(glance.name, ())))

    def _looked_at(self, name: str) -> tuple[Glance, Draughtsman] | None:
        """A run that is looked at; its past is asked for the more often, the later that was."""
        return self._drawn(name, self._prometheus.look_at(name))

    def _drawn(self, name: str, past: Past) -> tuple[Glance, Draughtsman] | None:
        with self._views() as views:
            for view in views:
                if view.name == name:
                    return Glance.of(view), Draughtsman(view.run.history.kept(), self._file.panels, past)
        return None

    def _look(self) -> list[Glance]:
        """Each run as it is now; those that did not change are not looked at again."""
        with self._views() as views:
            self._glances = {view.run.serial: self._glance(view) for view in views}
            return [glance for _, glance in self._glances.values()]

    def _glance(self, view: View) -> tuple[object, Glance]:
        key = view.name, view.state, view.run.version, view.run.times.last
        known = self._glances.get(view.run.serial)
        return known if known and known[0] == key else (key, Glance.of(view))

    def _judged(self) -> tuple[Asked, ...]:
        """What healths are made of: the limits of core signals, and the GPUs."""
        panels, core = self._file.panels, {each.signal for each in CORES}
        return (*panels.asked, *(limit for limit in panels.limits if limit.signal in core))

    def _charted(self) -> tuple[Asked, ...]:
        panels = self._file.panels
        return (*panels.asked, *panels.limits)

    def _spans(self) -> list[Span]:
        now = time.time()
        begun = ((glance.name, glance.start) for glance in self._look())
        return [Span(name, max(start, now - MONTH), now) for name, start in begun if start is not None]


def _episodes(past: Past, firing: tuple[Firing, ...], step: int | None) -> tuple[Episode, ...]:
    """Those of the past; one that fires now has its words, and one that just began is among them too."""
    words = {(alert.name, alert.severity): alert.summary for alert in firing}
    found = [
        replace(each, summary=words[each.name, each.severity], last_step=max(each.last_step, step or 0))
        if each.firing and (each.name, each.severity) in words
        else replace(each, firing=False)
        for each in past.episodes
    ]
    known = {(each.name, each.severity) for each in found if each.firing}
    new = [
        Episode(name, severity, step, step, firing=True, summary=summary)
        for (name, severity), summary in words.items()
        if (name, severity) not in known and step is not None
    ]
    return tuple(sorted([*found, *new], key=lambda each: (each.first_step, each.name)))


def _limits(drawn: Draughtsman, panel: Panel, signal: str) -> Iterator[SeriesLimit]:
    for limit in sorted(panel.limits, key=lambda limit: rank(limit.severity)):
        if limit.signal == signal and (at := drawn.limit_points(limit)):
            yield SeriesLimit(limit.name, limit.alert, limit.severity, limit.side, limit.alone, at)


def _of_gpus(drawn: Draughtsman) -> tuple[Point, ...]:
    found = (drawn.past.curves.get(asked, ()) for asked in drawn.panels.asked if asked.signal == GPU)
    return next(found, ())
