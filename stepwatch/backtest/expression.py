"""Parts of a rule's expression: what it reads, and what it compares with what."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import promql_parser
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    VectorSelector,
)

COMPARISONS = frozenset({">", ">=", "<", "<=", "==", "!="})


class Way(NamedTuple):
    """One way for a rule to fire.

    Its whole ``condition``, the ``value`` it looks at, and the ``limits`` that this passes: all PromQL.
    ``over``: the value must be above them, not below.
    """

    condition: str
    value: str
    limits: tuple[str, ...]
    over: bool


class Comparison(NamedTuple):
    """A ``value`` (PromQL) that must be above a number, or below it."""

    value: str
    number: float
    over: bool


class PromqlError(ValueError):
    """Raised for a text that is no PromQL."""


def parsed(expression: str) -> Any:
    """Its tree, as promql_parser has it.

    Raises:
        PromqlError: it is none.
    """
    try:
        return promql_parser.parse(expression)
    except ValueError as problem:
        raise PromqlError(f"{expression} is no PromQL: {problem}") from None


def comparisons(expression: str) -> Iterator[Comparison]:
    """Whatever an expression compares with a number, wherever in it."""
    for node in _nodes(expression):
        if (
            isinstance(node, BinaryExpr)
            and str(node.op) in COMPARISONS
            and isinstance(node.rhs, NumberLiteral)
        ):
            yield Comparison(str(node.lhs), node.rhs.val, over=">" in str(node.op))


def reads(expression: str) -> frozenset[str]:
    """The metrics that an expression reads."""
    return frozenset(node.name or "" for node in _nodes(expression) if isinstance(node, VectorSelector))


def signals(expression: str) -> frozenset[str]:
    """What it is about: the signals of the statistics and the metrics that it reads."""
    found = (node for node in _nodes(expression) if isinstance(node, VectorSelector))
    return frozenset(_labels(node).get("signal", (node.name or "").removeprefix("rl_")) for node in found)


def _labels(selector: VectorSelector) -> dict[str, str]:
    return {matcher.name: matcher.value for matcher in selector.matchers.matchers}


def counts_time(expression: str) -> bool:
    """Does it look at the clock, or back over time?"""
    return any(
        isinstance(node, MatrixSelector)
        or (isinstance(node, VectorSelector) and node.offset is not None)
        or (isinstance(node, Call) and node.func.name in ("time", "timestamp"))
        for node in _nodes(expression)
    )


# Most rules stay as they are while other limits are tried, and are asked of again each time.
@lru_cache(maxsize=1024)
def _nodes(expression: str) -> tuple[Any, ...]:
    found: list[Any] = []
    promql_parser.walk(parsed(expression), found.append)
    return tuple(found)


@lru_cache(maxsize=1024)
def ways(expression: str) -> tuple[Way, ...]:
    """Each alternative of an alert's condition, with what it compares first."""
    return tuple(_ways(parsed(expression)))


def _ways(node: Any) -> Iterator[Way]:
    match node:
        case AggregateExpr() | ParenExpr():
            yield from _ways(node.expr)
        case BinaryExpr() if str(node.op) == "or":
            yield from _ways(node.lhs)
            yield from _ways(node.rhs)
        case BinaryExpr() if str(node.op) in ("and", "unless"):
            yield from (_also(way, node) for way in _ways(node.lhs))
        case BinaryExpr() if str(node.op) in COMPARISONS:
            value, limit = _moved(node.lhs, str(node.rhs))
            yield Way(str(node), value, (limit,), over=">" in str(node.op))


def _also(way: Way, node: BinaryExpr) -> Way:
    """The way with one more condition, which may set the same value another limit."""
    condition = f"({way.condition}) {node.op} {node.modifier or ''} ({node.rhs})"
    others = list(_ways(node.rhs)) if str(node.op) == "and" else []
    same = [other.limits for other in others if (other.value, other.over) == (way.value, way.over)]
    return way._replace(condition=condition, limits=sum(same if len(others) == 1 else [], way.limits))


def _moved(node: Any, limit: str) -> tuple[str, str]:
    """``a - b > c`` looks at ``a``, and its limit is ``c + b``."""
    while isinstance(node, BinaryExpr) and str(node.op) == "-":
        node, limit = node.lhs, f"{limit} + {node.rhs}"
    return str(node), limit
