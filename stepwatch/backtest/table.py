"""Results as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from stepwatch.backtest.results import Alert, Judged, Results, Unjudged
from stepwatch.tables import table

HEAD = ("alert", "severity", "records", "steps", "value", "threshold", "")


def lines(results: Results) -> Iterator[str]:
    """Each run with its alerts below it, then what was left out."""
    for run in results.runs:
        yield from _error(run) if isinstance(run, Unjudged) else _run(run)
    yield ""
    yield f"Left out, as no old log can tell: {', '.join(results.left_out)}."


def _error(run: Unjudged) -> Iterator[str]:
    yield f"{run.run}: {run.error}"


def _run(run: Judged) -> Iterator[str]:
    yield f"{run.run}: {_extent(run)}, {run.format}"
    if not run.alerts:
        yield "  no alert"
        return
    for line in table([HEAD, *map(_row, run.alerts)]):
        yield f"  {line}"


def _extent(run: Judged) -> str:
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


def number(value: float | None) -> str:
    """A measured value in a few digits."""
    return "?" if value is None else f"{value:.4g}"
