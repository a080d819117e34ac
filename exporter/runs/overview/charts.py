"""The panels, filled with the history of a run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporter.drawing.chart import Band, Chart
from exporter.drawing.curve import Curve, Point, curve
from exporter.runs.model.history import Kept
from exporter.runs.overview.models import Episode
from exporter.runs.overview.panels import Asked, Limit, Line, Panel, Panels
from exporter.runs.overview.prometheus_api import Past


@dataclass(frozen=True)
class Draughtsman:
    """Draws one run."""

    kept: Kept
    panels: Panels
    past: Past

    def charts(self, episodes: Sequence[Episode]) -> tuple[Chart, ...]:
        """Panels without a curve are left out; those with an alert that fires come first."""
        drawn = [(panel, curves) for panel in self.panels.panels if (curves := self._curves(panel))]
        shown = frozenset().union(*(panel.signals for panel, _ in drawn))
        steps = [step for _, curves in drawn for each in curves for piece in each.pieces for step, _ in piece]
        charts = [
            (self._chart(panel, curves, mine, min(steps), max(steps)), any(each.firing for each in mine))
            for panel, curves in drawn
            for mine in [[each for each in episodes if self._concerns(each, panel, shown)]]
        ]
        return tuple(chart for chart, _ in sorted(charts, key=lambda each: not each[1]))

    def _chart(
        self, panel: Panel, curves: tuple[Curve, ...], mine: Iterable[Episode], first: int, last: int
    ) -> Chart:
        bands = (Band(each.name, each.severity, each.first_step, each.last_step) for each in mine)
        return Chart(
            panel.title,
            panel.description,
            panel.unit,
            panel.low,
            panel.high,
            first,
            last,
            curves,
            self._limits(panel),
            tuple(bands),
        )

    def _curves(self, panel: Panel) -> tuple[Curve, ...]:
        own = (self._line(line) for line in panel.curves)
        others = (self._asked(asked) for asked in panel.asked)
        return tuple(each for each in (*own, *others) if each.pieces)

    def _line(self, line: Line) -> Curve:
        kept = (self.kept.means if line.smoothed else self.kept.curves).get(line.signal)
        return Curve(line.name, kept.pieces() if kept else ())

    def _limits(self, panel: Panel) -> tuple[Curve, ...]:
        """Those of what the run logs, or Prometheus knows."""
        there = {*self.kept.curves, *(asked.signal for asked in panel.asked if self.past.curves.get(asked))}
        drawn = (self._asked(limit, limit.severity) for limit in panel.limits if limit.signal in there)
        return tuple(each for each in drawn if each.pieces)

    def _asked(self, asked: Asked, severity: str = "") -> Curve:
        points = self.past.curves.get(asked, ())
        found = {record: value for record, (_, value) in enumerate(points, 1)}
        return curve(asked.name, found, [step for step, _ in points], severity)

    def limit_points(self, limit: Limit) -> tuple[Point, ...]:
        """Return where a limit was, by step, since Prometheus watches the run."""
        return self.past.curves.get(limit, ())

    def points(self, signal: str, smooth: Line | None = None) -> tuple[Point, ...]:
        """What a signal was, or its smoothed curve."""
        if smooth is not None:
            return _flat(self._line(smooth))
        logged = self.kept.curves.get(signal)
        return tuple(point for piece in logged.pieces() for point in piece) if logged else ()

    def series(self, signal: str) -> tuple[Point, ...] | None:
        """A signal in one, breaks and all; ``None`` if nothing of it is kept."""
        logged = self.kept.curves.get(signal)
        return None if logged is None else tuple(logged.series())

    def since(self, signal: str, smooth: Line | None, limit: Limit) -> int | None:
        """From which step on the signal is beyond the limit; ``None`` if it is not now, or none is known."""
        bounds, begun = sorted(dict(self.limit_points(limit)).items()), None
        steps = [step for step, _ in bounds]
        for step, value in reversed(self.points(signal, smooth)):
            if not steps or step < steps[0]:
                break
            at = bounds[min(bisect_left(steps, step), len(bounds) - 1)][1]
            if not limit.is_passed(value, at):
                break
            begun = step
        return begun

    def _concerns(self, episode: Episode, panel: Panel, shown: frozenset[str]) -> bool:
        """Does the panel show what the alert looks at? One that no panel shows is shaded in all of them."""
        if any(limit.alert == episode.name for limit in panel.limits):
            return True
        about = self.panels.about.get(episode.name)
        return about is not None and (bool(panel.signals & about) or not shown & about)


def _flat(drawn: Curve) -> tuple[Point, ...]:
    return tuple(point for piece in drawn.pieces for point in piece)
