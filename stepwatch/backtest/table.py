"""Results as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepwatch.backtest import advice
from stepwatch.backtest.report import Report
from stepwatch.backtest.results import Alert, Judged, Unjudged
from stepwatch.backtest.suggestions import Suggestion
from stepwatch.system.terminal import table

SUGGESTED = ("limit", "alert", "severity", "now", "fires on", "lower", "higher")
NOTHING = "There is no run in what was named. docs/formats.md lists what is understood."
UNKNOWN = "none of its keys is a signal that rules look at; `make inspect RUNS=folder` shows them"

HEAD = ("alert", "severity", "records", "steps", "value", "threshold", "")


def lines(report: Report) -> Iterator[str]:
    """Each run with its alerts below it, what was left out, and what other limits would change."""
    results = report.results
    for run in results.runs:
        yield from _error(run) if isinstance(run, Unjudged) else _run(run)
    if not results.runs:
        yield NOTHING
    if not any(isinstance(run, Judged) for run in results.runs):
        return
    yield ""
    yield f"Left out, as no old log can tell: {', '.join(results.left_out)}."
    if report.suggestions is not None:
        judged = sum(isinstance(run, Judged) for run in results.runs)
        yield from _suggested(report.suggestions, judged)


def _error(run: Unjudged) -> Iterator[str]:
    yield f"{run.run}: {run.error}"


def _run(run: Judged) -> Iterator[str]:
    yield f"{run.run}: {extent(run)}, {run.format}"
    if not run.alerts:
        yield "  no alert" if run.signals else f"  no alert: {UNKNOWN}"
        return
    for line in table([HEAD, *map(_row, run.alerts)]):
        yield f"  {line}"


def extent(run: Judged) -> str:
    """How long it is, in words."""
    if not run.records:
        return "no record"
    return f"{run.records} records, steps {run.first_step} to {run.last_step}"


def _row(alert: Alert) -> tuple[str, ...]:
    return (
        alert.alert,
        alert.severity,
        f"{alert.first_record} to {alert.last_record}",
        f"{alert.first_step} to {alert.last_step}",
        number(alert.value),
        number(alert.threshold),
        "inhibited" if alert.inhibited else "",
    )


def _suggested(suggestions: Sequence[Suggestion], judged: int) -> Iterator[str]:
    yield ""
    yield advice.INTRODUCTION
    reached = [suggestion for suggestion in suggestions if suggestion.reached]
    if reached:
        yield from table([SUGGESTED, *(_suggestion(suggestion, judged) for suggestion in reached)])
    if unreached := advice.unreached(suggestions):
        yield unreached


def _suggestion(suggestion: Suggestion, judged: int) -> tuple[str, ...]:
    return (
        suggestion.limit,
        suggestion.alert,
        suggestion.severity,
        number(suggestion.now),
        f"{len(suggestion.fires_on)} of {judged}",
        *advice.sides(suggestion),
    )


def number(value: float | None) -> str:
    """A measured value in a few digits."""
    return "?" if value is None else f"{value:.4g}"
