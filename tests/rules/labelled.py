"""Which labels the result of an expression may have, and what in it asks for others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    LabelModifierType,
    MatchOp,
    MatrixSelector,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    ValueType,
    VectorMatchCardinality,
    VectorSelector,
    walk,
)

from tests.rules import served
from tests.rules.served import METRICS

Labels = frozenset[str]

_NONE: Labels = frozenset()
_ANYWHERE = frozenset({"cluster", "node"})
"""What any target has where one Prometheus watches several clusters, or agents scrape for it."""
_KEEPING = ("topk", "bottomk", "limitk", "limit_ratio")
"""Aggregations that pass series on as they are."""


def of(node: Any) -> Labels | None:
    """The labels that series of its result may have; None for a number."""
    match node:
        case VectorSelector():
            known = [METRICS[name].labels for name in served.asked(node) if name in METRICS]
            return _NONE.union(*known, _ANYWHERE if known else _NONE)
        case (
            MatrixSelector(vector_selector=inside)
            | SubqueryExpr(expr=inside)
            | ParenExpr(expr=inside)
            | UnaryExpr(expr=inside)
        ):
            return of(inside)
        case AggregateExpr():
            return _aggregated(node)
        case BinaryExpr():
            return _joined(node)
        case Call():
            return _called(node)
    return None


def _aggregated(node: AggregateExpr) -> Labels:
    inside = of(node.expr) or _NONE
    if str(node.op) in _KEEPING:
        return inside
    if node.modifier is None:
        return _NONE
    named = frozenset(node.modifier.labels)
    return inside & named if node.modifier.type == AggModifierType.By else inside - named


def _called(node: Call) -> Labels | None:
    if node.func.return_type == ValueType.Scalar:
        return None
    vectors = [labels for labels in map(of, node.args) if labels is not None]
    match node.func.name:
        case "vector":
            return _NONE
        case "absent" | "absent_over_time":
            return _asked_for(node)
        case "label_replace" | "label_join":
            return vectors[0] | {node.args[1].val}
        case "histogram_quantile":
            return vectors[0] - {"le"}
    return _NONE.union(*vectors)


def _asked_for(node: Call) -> Labels:
    """The labels that `absent` gives: those that are selected by their value."""
    (argument,) = node.args
    selector = argument.vector_selector if isinstance(argument, MatrixSelector) else argument
    return frozenset(each.name for each in selector.matchers.matchers if each.op == MatchOp.Equal)


def _joined(node: BinaryExpr) -> Labels | None:
    left, right = of(node.lhs), of(node.rhs)
    if left is None or right is None:
        return right if left is None else left
    if str(node.op) in ("and", "unless"):
        return left
    if str(node.op) == "or":
        return left | right
    grouped = frozenset((node.modifier and node.modifier.group_labels) or ())
    match node.modifier and node.modifier.card:
        case VectorMatchCardinality.ManyToOne:
            return left | grouped
        case VectorMatchCardinality.OneToMany:
            return right | grouped
    return _matched(node, left)


def _matched(node: BinaryExpr, side: Labels) -> Labels:
    """The labels of a side by which it is matched."""
    matching = node.modifier and node.modifier.matching
    if not matching:
        return side
    named = frozenset(matching.labels)
    return named if matching.type == LabelModifierType.Include else side - named


def faults(node: Any) -> Iterator[str]:
    """Where labels are asked for that cannot be there: a join then finds nothing, and no one is notified."""
    found: list[Any] = []
    walk(node, found.append)
    for each in found:
        match each:
            case BinaryExpr():
                yield from _impossible(each)
            case AggregateExpr() if each.modifier:
                yield from _lacking(each.expr, frozenset(each.modifier.labels), "to aggregate by")
            case VectorSelector():
                yield from _lacking(each, _demanded(each), "to select by")


def _impossible(node: BinaryExpr) -> Iterator[str]:
    left, right = of(node.lhs), of(node.rhs)
    if left is None or right is None or str(node.op) == "or":
        return
    for side, labels in ((node.lhs, left), (node.rhs, right)):
        yield from _lacking(side, _matched(node, labels), f"for `{node.op}`")
    if (one := _matched(node, left)) != (other := _matched(node, right)):
        yield f"`{node.op}` compares all labels, of which one side alone has {sorted(one ^ other)}: {node}"


def _lacking(node: Any, wanted: Labels, why: str) -> Iterator[str]:
    if missing := wanted - (of(node) or _NONE):
        yield f"{sorted(missing)} are not there {why}: {node}"


def _demanded(selector: VectorSelector) -> Labels:
    """Labels that must have a value."""
    return frozenset(
        each.name
        for each in selector.matchers.matchers
        if each.op in (MatchOp.Equal, MatchOp.Re) and each.value and each.name != "__name__"
    )
