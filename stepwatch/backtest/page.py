"""A report as one page that needs no network and no script, with the charts of each run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from exporter.drawing import html
from exporter.drawing.chart import SEVERITIES, Band, Chart, Curve, by_alert, curve
from exporter.runs.overview.models import RunId
from exporter.runs.overview.panels import of_run
from stepwatch.alerts.catalogue import TABLE
from stepwatch.backtest import suggestions
from stepwatch.backtest.judge import Alert, Judged
from stepwatch.backtest.replay import Replayed, Unjudged
from stepwatch.backtest.report import Report, extent, number
from stepwatch.backtest.server import START, Prometheus, Tick, side_by_side
from stepwatch.config import Config
from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.dashboard import Json
from stepwatch.render.generator import training
from stepwatch.render.layout import RESOURCES
from stepwatch.render.panels import Panel, panels
from stepwatch.rules.lines import lines, subjects
from stepwatch.rules.messages import runbook_url

TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Panels:
    """The panels of the Training dashboard, with the limits of each run: overrides are not replayed."""

    config: Config

    @cached_property
    def _document(self) -> Json:
        return training(self.config, RESOURCES, OnThisMachine)

    @property
    def metrics(self) -> frozenset[str]:
        """What must be loaded to draw them."""
        drawn = panels(self._document, lines(self.config, TABLE))
        return frozenset().union(*(panel.metrics for panel in drawn))

    def of_run(self, run: str) -> tuple[Panel, ...]:
        """Return the panels with the limits of a run."""
        return panels(self._document, lines(self.config.of_run(run), TABLE))


def charts(
    prometheus: Prometheus, panels: Panels, runs: Sequence[tuple[Replayed, Judged]], tick: Tick
) -> list[tuple[Chart, ...]]:
    """Return the charts of each run, drawn from what a Prometheus holds; ``tick`` is called after each."""
    return list(side_by_side(lambda run: _charts(prometheus, panels.of_run(run[0].run), *run), runs, tick))


def _charts(
    prometheus: Prometheus, panels: Iterable[Panel], run: Replayed, judged: Judged
) -> tuple[Chart, ...]:
    """Panels without a curve are left out; those in which an alert is shaded come first.

    An alert is shaded in the panels of its signals, and in all if none of these is drawn.
    """
    if not run.steps:
        return ()
    drawn = []
    for panel in panels:
        wanted = ((each.name, each.promql, "") for each in panel.curves if not each.asked)
        if curves := _curves(prometheus, run, wanted):
            drawn.append((panel, curves))
    shown = frozenset().union(*(panel.signals for panel, _ in drawn))
    about = subjects(TABLE)
    found = [
        Chart(
            panel.title,
            "",
            panel.unit,
            panel.low,
            panel.high,
            min(run.steps),
            max(run.steps),
            curves,
            _curves(prometheus, run, ((each.name, each.promql, each.severity) for each in panel.limits)),
            tuple(
                Band(alert.alert, alert.severity, alert.first_step, alert.last_step)
                for alert in judged.alerts
                if panel.signals & about[alert.alert] or not shown & about[alert.alert]
            ),
        )
        for panel, curves in drawn
    ]
    return tuple(sorted(found, key=lambda chart: not chart.bands))


def _curves(
    prometheus: Prometheus, run: Replayed, wanted: Iterable[tuple[str, str, str]]
) -> tuple[Curve, ...]:
    """Return the curves that have a value, of name, PromQL and severity."""
    found = []
    for name, promql, severity in wanted:
        times = prometheus.over(of_run(promql, RunId(run.run)), START + 1, START + len(run.steps)).get(
            run.run, {}
        )
        values = {time - START: value for time, value in times.items()}
        found.append(curve(name, values, run.steps, severity))
    return tuple(each for each in found if each.pieces)


@dataclass(frozen=True)
class Entry:
    """A run on the page: where its part is, and its charts."""

    anchor: str
    run: Judged | Unjudged
    charts: tuple[Chart, ...]

    @property
    def judged(self) -> bool:
        return isinstance(self.run, Judged)

    @property
    def fired(self) -> list[tuple[Alert, ...]]:
        """Its alerts, those of one name and severity together, the worst first."""
        return by_alert(self.run.alerts) if isinstance(self.run, Judged) else []

    @property
    def severity(self) -> str:
        """The worst that would have been sent; empty if nothing would, ``error`` if it was not judged."""
        if not self.judged:
            return "error"
        sent = {alert.severity for times in self.fired for alert in times if not alert.inhibited}
        return next((severity for severity in SEVERITIES if severity in sent), "")


def page(report: Report, drawn: Mapping[str, tuple[Chart, ...]], config: Config) -> str:
    """Return the page of a report with the charts ``drawn`` of its runs, by name; the worst run first."""

    def runbook(alert: str) -> str:
        """Return the runbook's heading of an alert, from wherever the page is opened."""
        link = runbook_url(config, alert)
        return link if "://" in link else f"{RESOURCES.as_uri()}/{link}"

    environment = html.environment(TEMPLATES)
    environment.globals |= {"suggestions": suggestions, "extent": extent, "runbook": runbook}
    environment.filters["number"] = number
    entries = [
        Entry(f"run-{index}", run, drawn.get(run.run, ()) if isinstance(run, Judged) else ())
        for index, run in enumerate(report.results.runs, 1)
    ]
    worst = [entry.severity for entry in entries]
    ranks = (*SEVERITIES, "", "error")
    kinds = {
        "with a critical alert": worst.count("critical"),
        "with warnings only": worst.count("warning"),
        "silent": worst.count("info") + worst.count(""),
        "not judged": worst.count("error"),
    }
    return environment.get_template("page.html.j2").render(
        report=report,
        entries=sorted(entries, key=lambda entry: (ranks.index(entry.severity), -len(entry.fired))),
        judged=len(report.results.judged),
        summary=html.run_counts(kinds),
    )
