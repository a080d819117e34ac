"""What a dashboard asks Prometheus, with Grafana's variables filled in as Grafana would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser

Json = dict[str, Any]


class DashboardQuery(NamedTuple):
    """One query, ready to be sent."""

    dashboard: str
    panel: str
    expr: str


def dashboard_queries(dashboard: Json, run: str = "", instance: str = "") -> list[DashboardQuery]:
    """All queries of a dashboard's panels and annotations for the run, or the box of GPUs, on show.

    A query may rightly return nothing where none of its metrics exist (`metrics_of`): a run
    without a critic, a machine without a GPU, no alert that fires.
    """
    return [
        DashboardQuery(dashboard["title"], panel, fill_in(fill_in(expr, run), instance, "instance"))
        for panel, expr in _expressions(dashboard)
    ]


def _expressions(dashboard: Json) -> Iterator[tuple[str, str]]:
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def fill_in(expr: str, value: str, variable: str = "run") -> str:
    """Replace a variable as Grafana's `doublequote` format does: in quotes, and those in it escaped."""
    quoted = value.replace('"', '\\"')
    return expr.replace(f"${{{variable}:doublequote}}", f'"{quoted}"')


def selectors(expr: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Metric name and `=` matchers of every selector in an expression."""
    yield from _selectors(promql_parser.parse(expr))


def metrics_of(expr: str) -> set[str]:
    """Names of the metrics that an expression reads."""
    return {name for name, _ in selectors(expr)}


def _selectors(node: Any) -> Iterator[tuple[str, dict[str, str]]]:
    if isinstance(node, promql_parser.VectorSelector):
        equal = promql_parser.MatchOp.Equal
        yield node.name, {each.name: each.value for each in node.matchers.matchers if each.op == equal}
    for child in _children(node):
        yield from _selectors(child)


def _children(node: Any) -> Iterator[Any]:
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        child = getattr(node, name, None)
        if isinstance(child, promql_parser.Expr):
            yield child
    yield from getattr(node, "args", [])
