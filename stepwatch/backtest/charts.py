"""What the panels show of a run, drawn from what a Prometheus holds of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from exporter.drawing.chart import Band, Chart
from exporter.drawing.curve import Curve, curve
from stepwatch.backtest.openmetrics_writer import START, Replayed
from stepwatch.backtest.results import Alert, Judged
from stepwatch.backtest.server import Prometheus, Tick, side_by_side
from stepwatch.render.panels import Panel, of_run


@dataclass(frozen=True)
class Draughtsman:
    """Asks for what the panels of each run show. ``about``: the signals that each alert looks at."""

    prometheus: Prometheus
    panels: Callable[[str], Sequence[Panel]]
    about: Mapping[str, frozenset[str]]

    def charts(self, runs: Sequence[tuple[Replayed, Judged]], tick: Tick) -> list[tuple[Chart, ...]]:
        """The charts of each run; ``tick`` is called after each."""
        return list(side_by_side(lambda run: self._of(*run), runs, tick))

    def _of(self, run: Replayed, judged: Judged) -> tuple[Chart, ...]:
        """Panels without a curve are left out; those in which an alert is shaded come first."""
        if not run.steps:
            return ()
        filled = [(panel, curves) for panel in self.panels(run.run) if (curves := self._curves(panel, run))]
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
                self._limits(panel, run),
                tuple(
                    Band(alert.alert, alert.severity, alert.first_step, alert.last_step)
                    for alert in judged.alerts
                    if self._concerns(alert, panel, shown)
                ),
            )
            for panel, curves in filled
        ]
        return tuple(sorted(charts, key=lambda chart: not chart.bands))

    def _curves(self, panel: Panel, run: Replayed) -> tuple[Curve, ...]:
        found = (self._line(each.name, each.promql, run) for each in panel.curves if not each.asked)
        return tuple(each for each in found if each.pieces)

    def _limits(self, panel: Panel, run: Replayed) -> tuple[Curve, ...]:
        found = (self._line(each.name, each.promql, run, each.severity) for each in panel.limits)
        return tuple(each for each in found if each.pieces)

    def _line(self, name: str, promql: str, run: Replayed, severity: str = "") -> Curve:
        asked = of_run(promql, run.run)
        times = self.prometheus.over(asked, START + 1, START + len(run.steps)).get(run.run, {})
        return curve(name, {time - START: value for time, value in times.items()}, run.steps, severity)

    def _concerns(self, alert: Alert, panel: Panel, shown: frozenset[str]) -> bool:
        """Does the panel show what the alert looks at? One that no panel shows is shaded in all of them."""
        about = self.about[alert.alert]
        return bool(panel.signals & about) or not shown & about
