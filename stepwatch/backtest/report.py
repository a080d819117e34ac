"""The report of a backtest: as JSON, as text for a terminal, and as one page with the charts of each run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile

import orjson

from exporter.runs.overview.charts import (
    SEVERITIES,
    Band,
    Chart,
    Curve,
    by_alert,
    curve,
    environment,
    run_counts,
)
from exporter.runs.overview.models import RunId
from exporter.runs.overview.panels import Panel, of_run
from stepwatch.alerts.table import TABLE
from stepwatch.backtest import suggestions
from stepwatch.backtest.judge import Alert, Judged, Results
from stepwatch.backtest.replay import START, Prometheus, Replayed, Tick, Unjudged, side_by_side
from stepwatch.backtest.suggestions import Suggestion
from stepwatch.config import Config
from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.dashboard import Json
from stepwatch.render.generator import training
from stepwatch.render.panels import metrics, panels
from stepwatch.rules.lines import lines, subjects
from stepwatch.rules.messages import runbook_url
from stepwatch.schema.errors import Refused
from stepwatch.system.environment import RESOURCES
from stepwatch.system.terminal import table

PAGE, DOCUMENT = "index.html", "backtest.json"
HEAD = ("alert", "severity", "records", "steps", "value", "threshold", "")
SUGGESTED = ("limit", "alert", "severity", "now", "fires on", "lower", "higher")
NOTHING = "No run found. docs/formats.md lists the supported formats."
MOST_MUTES = 5  # that are listed
UNKNOWN = "none of its keys is a signal that rules use; `make inspect RUNS=folder` shows them"


@dataclass(frozen=True)
class Report:
    """The results, the values that were ``tried`` in place of the file's, and what other limits would do."""

    results: Results
    tried: tuple[str, ...] = ()
    suggestions: tuple[Suggestion, ...] | None = None

    def json(self) -> str:
        """Return the report as JSON."""
        found = {**self.results.document(), "tried": list(self.tried)}
        if self.suggestions is not None:
            found["suggestions"] = [asdict(suggestion) for suggestion in self.suggestions]
        return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()

    def lines(self) -> Iterator[str]:
        """Yield each run with its alerts below it, what was left out, and what other limits would change."""
        for run in self.results.runs:
            yield from _lines(run)
        if not self.results.runs:
            yield NOTHING
        judged = len(self.results.judged)
        if not judged:
            return
        yield ""
        of_runs = {alert.name for alert in TABLE if alert.subject == "run"}
        named = [name for name in self.results.left_out if name in of_runs]
        others = f"and {len(self.results.left_out) - len(named)} about GPUs, machines, servers and the stack"
        yield f"Not replayed, because logs lack the data: {', '.join((*named, others))}."
        if self.suggestions is None:
            return
        yield ""
        yield suggestions.INTRODUCTION
        rows = [
            (
                each.limit,
                each.alert,
                each.severity,
                number(each.now),
                f"{len(each.fires_on)} of {judged}",
                *each.sides,
            )
            for each in self.suggestions
            if each.reached
        ]
        if rows:
            yield from table([SUGGESTED, *rows])
        if unreached := suggestions.unreached(self.suggestions):
            yield unreached


def _lines(run: Judged | Unjudged) -> Iterator[str]:
    if isinstance(run, Unjudged):
        yield f"{run.run}: {run.error}"
        return
    yield f"{run.run}: {extent(run)}, {run.format}"
    if run.muted:
        yield f"  {mute(run)}"
    if not run.alerts:
        yield "  no alert" if run.signals else f"  no alert: {UNKNOWN}"
        return
    rows = [
        (
            alert.alert,
            alert.severity,
            f"{alert.first_record} to {alert.last_record}",
            f"{alert.first_step} to {alert.last_step}",
            number(alert.value),
            number(alert.threshold),
            "inhibited" if alert.inhibited else "",
        )
        for alert in run.alerts
    ]
    for line in table([HEAD, *rows]):
        yield f"  {line}"


def extent(run: Judged) -> str:
    """Return how long a run is, in words."""
    if not run.records:
        return "no record"
    return f"{run.records} records, steps {run.first_step} to {run.last_step}"


def mute(run: Judged) -> str:
    """Return after which steps, at least one, its alerts would have been muted too early, in words."""
    steps = ", ".join(map(str, run.muted[:MOST_MUTES]))
    more = f" and {len(run.muted) - MOST_MUTES} more" if len(run.muted) > MOST_MUTES else ""
    return f"its log says finished at step {steps}{more}: live, no alert fires until the next step"


def number(value: float | None) -> str:
    """Return a measured value in a few digits."""
    return "?" if value is None else f"{value:.4g}"


def make(folder: Path) -> None:
    """Make the folder of a report, if it is missing, before the work begins. Raises ``Refused``."""
    with _folder_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files of a report, by name. Raises ``Refused``."""
    with _folder_errors(folder):
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")


@contextmanager
def _folder_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(
            f"--report {folder}: {error.strerror}. Expected: a folder to write {PAGE} and {DOCUMENT} to. "
            "Fix: name another one, or correct its permissions."
        ) from error


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
        return metrics(self._document, lines(self.config, self.config.table.alerts, inline=True))

    def of_run(self, run: str) -> tuple[Panel, ...]:
        """Return the panels with the limits of a run."""
        return panels(self._document, lines(self.config.of_run(run), self.config.table.alerts, inline=True))


def charts(
    prometheus: Prometheus, panels: Panels, runs: Sequence[tuple[Replayed, Judged]], tick: Tick
) -> list[tuple[Chart, ...]]:
    """Return the charts of each run, drawn from what a Prometheus holds; ``tick`` is called after each."""
    about = subjects(panels.config.table.alerts)

    def drawn(run: tuple[Replayed, Judged]) -> tuple[Chart, ...]:
        return _charts(prometheus, panels.of_run(run[0].run), about, *run)

    return list(side_by_side(drawn, runs, tick))


def _charts(
    prometheus: Prometheus,
    panels: Iterable[Panel],
    about: Mapping[str, frozenset[str]],
    run: Replayed,
    judged: Judged,
) -> tuple[Chart, ...]:
    """Yield panels with a curve; those with a shaded alert (in its signals' panels, or all) come first."""
    if not run.steps:
        return ()
    drawn = []
    for panel in panels:
        wanted = ((each.name, each.promql, "") for each in panel.curves)
        if curves := _curves(prometheus, run, wanted):
            drawn.append((panel, curves))
    shown = frozenset().union(*(panel.signals for panel, _ in drawn))
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

    jinja = environment(TEMPLATES)
    jinja.globals |= {"suggestions": suggestions, "extent": extent, "mute": mute, "runbook": runbook}
    jinja.filters["number"] = number
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
    return jinja.get_template("page.html.j2").render(
        report=report,
        entries=sorted(entries, key=lambda entry: (ranks.index(entry.severity), -len(entry.fired))),
        judged=len(report.results.judged),
        summary=run_counts(kinds),
    )
