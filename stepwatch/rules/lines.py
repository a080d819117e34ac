"""Where the limits of alerts lie: lines in the panels of signals, on dashboards, pages and in backtests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from stepwatch.alerts import promql
from stepwatch.alerts.alert import OWN_LIMIT, Alert, Condition
from stepwatch.config.models import Config
from stepwatch.rules.alerting import InForce, in_force
from stepwatch.rules.subjects import SUBJECTS


def chosen(variable: str) -> str:
    """Return what selects series by the label that a variable of a dashboard chooses.

    Grafana's `doublequote` adds the quotes and escapes those within. Plain "$run" would leave a double quote
    as it is and garble a single one: what Grafana 10 to 13 does to a Prometheus variable of one value.
    """
    return f"{variable}=${{{variable}:doublequote}}"


RUN = chosen("run")
"""What selects the run on show."""

CLUSTER = chosen("cluster")
"""What selects its cluster. Without a value, it selects what has no such label."""


def on_show(config: Config, variable: str) -> str:
    """Return what selects what a dashboard shows, by the label that chooses it."""
    return f"{CLUSTER},{chosen(variable)}" if config.several_clusters else chosen(variable)


@dataclass(frozen=True)
class Line:
    """A limit in the panel of its signal.

    ``name`` says what it follows from, where the alert has several. ``side`` (high or low) is where the
    signal is when the alert fires; it looks at nothing else if ``alone``. ``promql`` is for what the
    ``dashboard`` shows: a run, or a machine, of whose GPUs it is the limit that is reached first. ``number``
    is the same for every run, if there is one.
    """

    name: str
    alert: str
    severity: str
    signal: str
    side: str
    alone: bool
    dashboard: str
    promql: str
    number: float | None
    metrics: frozenset[str]


def lines(config: Config, table: tuple[Alert, ...], *, inline: bool = False) -> tuple[Line, ...]:
    """Return the lines of the alerts that are on for any run, in the order of the table.

    ``inline``: where no rules record limits.
    """
    found: dict[tuple[str, str, str], tuple[Line, str]] = {}
    for alert in in_force(config, table):
        for condition in alert.conditions:
            if condition.signal:
                line = _line(config, alert, condition, inline=inline)
                key = line.alert, line.signal, alert.switched(alert.drawn(condition))
                if key not in found or (line.alone and not found[key][0].alone):
                    found[key] = line, condition.legend or condition.baseline
    several = Counter((line.alert, line.severity, line.signal) for line, _ in found.values())
    return tuple(
        replace(line, name=f"{line.alert} {baseline}".strip())
        if several[line.alert, line.severity, line.signal] > 1
        else line
        for line, baseline in found.values()
    )


def subjects(table: tuple[Alert, ...]) -> dict[str, frozenset[str]]:
    """Return the signals that each alert on the records of a run measures, by its name."""
    found: dict[str, frozenset[str]] = {}
    for alert in table:
        if alert.from_records:
            values = (promql.expand(each.value, str) for each in alert.conditions)
            measured = frozenset().union(*map(promql.signals, values))
            found[alert.name] = found.get(alert.name, frozenset()) | measured
    return found


def _line(config: Config, found: InForce, condition: Condition, *, inline: bool) -> Line:
    alert, subject = found.alert, SUBJECTS[found.alert.subject]
    side = "high" if condition.drawn.operator.startswith(">") else "low"
    text = found.drawn(condition)
    of_itself = condition.line is None or OWN_LIMIT in promql.keys(condition.line.limit)
    if found.records and of_itself and not inline:
        limit = found.drawn(condition, found.promql(f"by_run({found.series(condition)})"))
    else:
        limit = found.switched(_as_curve(found, condition, text))
    limit = promql.of(limit, on_show(config, subject.view.variable))
    whole = "\n".join((condition.expression, alert.given, alert.unless))
    read = promql.signals(promql.expand(whole, lambda _: "1"))
    return Line(
        alert.name,
        alert.name,
        found.severity,
        condition.signal,
        side,
        read <= {condition.signal},
        subject.view.dashboard,
        limit if alert.subject == "run" else f"{'min' if side == 'high' else 'max'}{promql.bracketed(limit)}",
        float(text) if promql.is_number(text) else None,
        promql.metrics(limit),
    )


def _as_curve(found: InForce, condition: Condition, limit: str) -> str:
    """Return a limit with a value at each time of its signal's curve: a number alone has no time."""
    if promql.metrics(promql.expand(condition.drawn.limit, lambda _: "1")):
        return limit
    measured = promql.signals(found.promql(condition.value))
    curve = f"rl_{condition.signal}" if condition.signal in measured else "rl_step"
    everywhere = f"by_run({curve})" if found.alert.subject == "run" else "by_gpu(gpu_up)"
    return f"{limit} + 0 * {found.promql(everywhere)}"
