"""What a dashboard asks Prometheus, with Grafana's variables filled in as Grafana would."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from stepwatch.schema.scalars import Duration
from stepwatch.system import http_client
from tests.rules import selectors as promql

Json = dict[str, Any]


class DashboardQuery(NamedTuple):
    """One query, ready to be sent."""

    dashboard: str
    panel: str
    expr: str

    @property
    def limit(self) -> str:
        """The expression, of a limit without the condition that it is near the curve."""
        return bare(self.expr)


def bare(expr: str) -> str:
    """Return a limit without the condition that it is near the curve; any other expression as it is."""
    limit, reach, _ = expr.partition(") <= scalar(")
    return limit.removeprefix("(") if reach else expr


def dashboard_queries(
    dashboard: Json, run: str = "", instance: str = "", cluster: str = ""
) -> list[DashboardQuery]:
    """All queries of a dashboard's panels and annotations for the run, or the box of GPUs, on show.

    Where dashboards choose it, of this ``cluster``; without one, of what has no such label.

    A query may rightly return nothing where none of its metrics exist (`metrics_of`): a run
    without a critic, a machine without a GPU, no alert that fires.
    """
    every = dict.fromkeys(("folder", "framework", "state", "runs", "server", "machine"), ".*")
    chosen = {"run": run, "instance": instance, "baseline": run, "reach": "0.5", "band": "60"}
    chosen |= dict.fromkeys(("cluster", "clusters", "baseline_cluster"), cluster)
    view = View(0, 3600, {**every, **chosen})
    return [
        DashboardQuery(dashboard["title"], panel, view.expression(expr))
        for panel, expr in _expressions(dashboard)
    ]


def _expressions(dashboard: Json) -> Iterator[tuple[str, str]]:
    for panel in panels_of(dashboard):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between points to which Grafana rounds: to the nearest."""


@dataclass(frozen=True)
class View:
    """What a person chose: values of variables, ``.*`` for all, and the time on show.

    ``interval`` is that of scrapes in seconds, ``points`` the width of the panel in pixels.
    """

    start: float
    end: float
    variables: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    interval: float = 5
    points: int = 800

    @property
    def step(self) -> float:
        """Seconds between the points of a curve."""
        exact = (self.end - self.start) / self.points
        return max(self.interval, min(_STEPS, key=lambda step: abs(step - exact)))

    def expression(self, template: str) -> str:
        """PromQL as Grafana sends it: variables by their formats, and its own about times."""
        own = {
            "__range": f"{self.end - self.start:.0f}s",
            "__interval": f"{self.step:.0f}s",
            "__interval_ms": f"{1000 * self.step:.0f}",
            "__rate_interval": f"{max(self.step + self.interval, 4 * self.interval):.0f}s",
        }

        def value(found: re.Match[str]) -> str:
            name, kind = found[1] or found[3], found[2]
            if name in own:
                return own[name]
            chosen = self.variables[name]
            return _formatted(chosen, kind)

        return re.sub(r"\$\{(\w+)(?::(\w+))?\}|\$(__\w+)", value, template)


def _formatted(chosen: str | Sequence[str], kind: str | None) -> str:
    if kind is None:
        assert isinstance(chosen, str)
        return chosen
    if chosen == ".*":  # all: Grafana leaves it as it is
        return ".*"
    if kind == "doublequote":
        assert isinstance(chosen, str)
        return '"{}"'.format(chosen.replace('"', '\\"'))
    assert kind == "regex", kind
    names = [chosen] if isinstance(chosen, str) else list(chosen)
    escaped = [re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", name) for name in names]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def panels_of(dashboard: Json) -> Iterator[Json]:
    """Yield the panels, those of collapsed rows too."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def ask(url: str, target: Json, view: View) -> Json:
    """Return the answer to a query of a panel, as Prometheus gives it."""
    # As Grafana's data source takes a query's "Min step": its own, else that of the data source.
    view = (
        replace(view, interval=Duration.parse(target["interval"]).seconds) if "interval" in target else view
    )
    expr = view.expression(target["expr"])
    if target["instant"]:
        path, times = "query", {"time": view.end}
    else:
        # As Grafana's data source does, so that points lie where those of subqueries do.
        start, end = (time - time % view.step for time in (view.start, view.end))
        path, times = "query_range", {"start": start, "end": end, "step": view.step}
    body = urllib.parse.urlencode({"query": expr, **times}).encode()
    try:
        with http_client.direct.open(f"{url}/api/v1/{path}", body, timeout=60) as answer:
            data: Json = json.load(answer)["data"]
    except urllib.error.HTTPError as refusal:
        raise AssertionError(f"{json.load(refusal)['error']}\n{expr}") from None
    return {**data, "step": view.step}


def marks_of(url: str, annotation: Json, view: View) -> list[Json]:
    """Return what an annotation marks in the time on show: ``time`` in milliseconds, ``title``, ``color``.

    As Grafana does it where values are times: each time once.
    """
    assert annotation["useValueForTime"]
    answer = ask(url, {"expr": annotation["expr"], "instant": False}, view)
    found = {
        (int(float(value)), _titled(annotation["titleFormat"], series["metric"]))
        for series in answer["result"]
        for _, value in series["values"]
    }
    return [
        {"time": time, "title": title, "color": annotation["iconColor"]}
        for time, title in sorted(found)
        if 1000 * view.start <= time <= 1000 * view.end
    ]


def _titled(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), template)


def selectors(expr: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Metric name and `=` matchers of every selector in an expression."""
    for each in promql.selectors(expr):
        labels = {label: value for label, sign, value in each.matchers if sign == "="}
        if each.name:
            yield each.name, labels
        else:  # `{__name__=~"rl_(reward|kl)"}`
            (pattern,) = (value for label, _, value in each.matchers if label == "__name__")
            prefix, _, names = pattern.rstrip(")").partition("(")
            yield from ((prefix + name, labels) for name in names.split("|"))


def metrics_of(expr: str) -> set[str]:
    """Names of the metrics that an expression reads."""
    return {name for name, _ in selectors(expr)}
