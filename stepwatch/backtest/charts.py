"""What the panels show of a run, drawn from what a Prometheus holds of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.drawing.chart import Band, Chart
from exporter.drawing.curve import Curve, curve
from stepwatch.backtest.progress import Tick
from stepwatch.backtest.results import Alert, Judged
from stepwatch.backtest.server import Prometheus, side_by_side
from stepwatch.backtest.tape import START, Replayed
from stepwatch.panels.dashboard import Panel, Query


@dataclass(frozen=True)
class Draughtsman:
    """Asks for what the panels show. ``about``: the signals that each alert looks at."""

    prometheus: Prometheus
    panels: Sequence[Panel]
    about: Mapping[str, frozenset[str]]

    def charts(self, runs: Sequence[tuple[Replayed, Judged]], tick: Tick) -> list[tuple[Chart, ...]]:
        """The charts of each run; ``tick`` is called after each."""
        return list(side_by_side(lambda run: self._of(*run), runs, tick))

    def _of(self, run: Replayed, judged: Judged) -> tuple[Chart, ...]:
        """Panels without a curve are left out; those in which an alert is shaded come first."""
        if not run.steps:
            return ()
        filled = [(panel, curves) for panel in self.panels if (curves := self._lines(panel.curves, run))]
        shown = frozenset().union(*(panel.signals for panel, _ in filled))
        charts = [
            Chart(
                panel.title,
                "",
                panel.unit,
                panel.low,
                panel.high,
                min(run.steps),
                max(run.steps),
                curves,
                self._lines(panel.limits, run),
                tuple(_band(alert) for alert in judged.alerts if self._concerns(alert, panel, shown)),
            )
            for panel, curves in filled
        ]
        return tuple(sorted(charts, key=lambda chart: not chart.bands))

    def _lines(self, queries: Sequence[Query], run: Replayed) -> tuple[Curve, ...]:
        return tuple(line for query in queries if (line := self._line(query, run)).pieces)

    def _line(self, query: Query, run: Replayed) -> Curve:
        times = self.prometheus.over(query.of(run.run), START + 1, START + len(run.steps)).get(run.run, {})
        values = {time - START: value for time, value in times.items()}
        return curve(query.name, values, run.steps, query.severity)

    def _concerns(self, alert: Alert, panel: Panel, shown: frozenset[str]) -> bool:
        """Does the panel show what the alert looks at? One that no panel shows is shaded in all of them."""
        about = self.about[alert.alert]
        return bool(panel.signals & about) or not shown & about


def _band(alert: Alert) -> Band:
    return Band(alert.alert, alert.severity, alert.first_step, alert.last_step)
