"""A report as one page that needs no network and no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from exporter.drawing import pages
from exporter.drawing.chart import Chart, by_alert
from exporter.drawing.severity import SEVERITIES
from exporter.drawing.tally import tally
from stepwatch.backtest import advice
from stepwatch.backtest.report import Report
from stepwatch.backtest.results import Alert, Judged, Unjudged
from stepwatch.backtest.table import extent, number
from stepwatch.config import Config
from stepwatch.render.layout import RESOURCES
from stepwatch.rules.messages import runbook_url

TEMPLATES = Path(__file__).with_name("templates")


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
        """The worst that would have been sent; empty if nothing would."""
        sent = {alert.severity for times in self.fired for alert in times if not alert.inhibited}
        return next((severity for severity in SEVERITIES if severity in sent), "")


def page(report: Report, charts: Mapping[str, tuple[Chart, ...]], config: Config) -> str:
    """The page of a report with the charts of its runs, by name."""
    runs = report.results.runs
    entries = [
        Entry(f"run-{index}", run, charts.get(run.run, ()) if isinstance(run, Judged) else ())
        for index, run in enumerate(runs, 1)
    ]
    return (
        _environment(config)
        .get_template("page.html.j2")
        .render(
            report=report,
            entries=sorted(entries, key=_rank),
            judged=sum(entry.judged for entry in entries),
            summary=_summary(entries),
        )
    )


def _environment(config: Config) -> jinja2.Environment:
    environment = pages.environment(TEMPLATES)
    environment.globals |= {
        "advice": advice,
        "extent": extent,
        "runbook": lambda alert: _runbook(config, alert),
    }
    environment.filters["number"] = number
    return environment


def _rank(entry: Entry) -> tuple[int, int]:
    """The worst first; what could not be judged last."""
    if not entry.judged:
        return len(SEVERITIES) + 1, 0
    worst = SEVERITIES.index(entry.severity) if entry.severity else len(SEVERITIES)
    return worst, -len(entry.fired)


def _summary(entries: Sequence[Entry]) -> str:
    worst = [entry.severity if entry.judged else "error" for entry in entries]
    kinds = {
        "with a critical alert": worst.count("critical"),
        "with warnings only": worst.count("warning"),
        "silent": worst.count("info") + worst.count(""),
        "not judged": worst.count("error"),
    }
    return tally("run", kinds)


def _runbook(config: Config, alert: str) -> str:
    """The runbook's heading of an alert, from wherever the page is opened."""
    link = runbook_url(config, alert)
    return link if "://" in link else f"{RESOURCES.as_uri()}/{link}"
