"""PromQL as a syntax tree: what an expression reads, and where it stands."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
from promql_parser import AggregateExpr, BinaryExpr, Call, MatchOp, ParenExpr, UnaryExpr, VectorSelector

from tests.rules import rendered
from tests.rules.series import Series

_ASKED = re.compile(
    r'query \(printf "([^"]+)"|printf "([^"]+)" \$r\|query|printf `([^`]+)` \.\|query|query `([^`]+)`'
)
_ANY_RUN = 'run="any",cluster="any"'
_LIMIT = re.compile(r"limit_info{rule='([^']+)'}.*printf \.Labels\.expr \$r\|query")


def parse(expression: str) -> Any:
    """The tree of an expression; Grafana's variables are read as any value."""
    filled = re.sub(r"\$\{\w+:doublequote\}", '"any"', expression.replace("$__range", "1h"))
    return promql_parser.parse(filled)


def asked(annotation: str) -> list[str]:
    """The expressions that an annotation asks for, about a run or GPU named `any`."""
    found = ["".join(query) for query in _ASKED.findall(annotation)]
    filled = (re.sub(r"%(?:\[\d\])?q", '"any"', query) for query in found)
    asked = [re.sub(r"%(?:\[\d\])?s", _ANY_RUN, query) for query in filled]
    limits = (_limits()[rule] for rule in _LIMIT.findall(annotation))
    return [*asked, *(limit.replace("%[1]s", _ANY_RUN).replace("%%", "%") for limit in limits)]


@functools.cache
def _limits() -> dict[str, str]:
    """The expression of the limit that a rule about runs passed, by name and severity of the rule."""
    records = (each for group in rendered.groups() for each in rendered.recorded(group))
    return {
        each["labels"]["rule"]: each["labels"]["expr"] for each in records if each["record"] == "limit_info"
    }


def selectors(node: Any) -> list[VectorSelector]:
    """Every selector in a tree."""
    found: list[VectorSelector] = []
    promql_parser.walk(node, lambda each: found.append(each) if isinstance(each, VectorSelector) else None)
    return found


def labels(selector: VectorSelector) -> dict[str, str]:
    """The labels that a selector asks for by equality, but for those of a run."""
    return {
        each.name: each.value
        for each in selector.matchers.matchers
        if each.op == MatchOp.Equal and each.name not in ("cluster", "run")
    }


def series(selector: VectorSelector) -> Series:
    """The series that a selector asks for, whatever the run."""
    return Series(selector.name or "", tuple(labels(selector).items()))


def read(expression: str, known: list[Series]) -> list[Series]:
    """Which of the known series an expression reads."""
    wanted = [series(selector) for selector in selectors(parse(expression))]
    return [each for each in known if any(_selects(one, each) for one in wanted)]


def _selects(wanted: Series, known: Series) -> bool:
    return wanted.metric == known.metric and set(wanted.labels) <= set(known.labels)


_TARGET = {"job", "instance"}
"""What differs between two exporters of one run."""


def bare(node: Any, inside: bool = False) -> Iterator[VectorSelector]:
    """Selectors that are not, alone or in one function, aggregated by run, by a run's parts, or in all."""
    match node:
        case VectorSelector():
            if not inside:
                yield node
        case promql_parser.MatrixSelector():
            yield from bare(node.vector_selector, inside)
        case AggregateExpr():
            by = node.modifier.labels if node.modifier else []
            whole = str(node.op) == "max" and by in ([], ["run"], ["cluster", "run"])
            parts = str(node.op) == "group" and by[:2] == ["cluster", "run"] and not _TARGET.intersection(by)
            joined = whole or parts
            yield from bare(node.expr, joined)
        case Call():
            for argument in node.args:
                yield from bare(argument, inside)
        case BinaryExpr():
            yield from bare(node.lhs)
            yield from bare(node.rhs)
        case ParenExpr() | UnaryExpr():
            yield from bare(node.expr)


def compared(node: Any) -> Iterator[tuple[Series, str]]:
    """How each selector is compared: `high`, `low`, or `none` where it is no more than a yardstick."""
    match node:
        case BinaryExpr() if str(node.op) in _HELD:
            yield from _sides(node, _HELD[str(node.op)])
        case BinaryExpr() if str(node.op) == "unless":
            yield from compared(node.lhs)
            yield from _yardsticks(node.rhs)
        case BinaryExpr():
            yield from compared(node.lhs)
            yield from compared(node.rhs)
        case AggregateExpr() | ParenExpr() | UnaryExpr():
            yield from compared(node.expr)
        case _:
            yield from _yardsticks(node)


_HELD = {">": "high", ">=": "high", "<": "low", "<=": "low", "==": "low"}


def _sides(node: BinaryExpr, held: str) -> Iterator[tuple[Series, str]]:
    """Of `a - b > c` only `a` is what the rule looks for; `b` and `c` are yardsticks."""
    subject = node.lhs
    while isinstance(subject, BinaryExpr):
        yield from _yardsticks(subject.rhs)
        subject = subject.lhs
    yield from ((series(each), held) for each in selectors(subject))
    yield from _yardsticks(node.rhs)


def _yardsticks(node: Any) -> Iterator[tuple[Series, str]]:
    yield from ((series(each), "none") for each in selectors(node))
