"""PromQL about one run as the run exporter evaluates it: see ``exporter.runs.history.formula``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    MatchOp,
    NumberLiteral,
    ParenExpr,
    UnaryExpr,
    VectorSelector,
)

from exporter.runs.history.formula import Formula
from exporter.runs.history.history import DRAWN
from exporter.runs.history.samples import SAMPLED, STEP
from stepwatch.backtest.expression import parsed

From = TypeVar("From")
To = TypeVar("To")

LABELS = ("signal", "alpha", "steps")
"""In the order in which the exporter writes them."""

OPERATORS = frozenset({"+", "-", "*", "/", ">", "<"})
_SIGNAL = re.compile('signal="(.*?)"')
FUNCTIONS = frozenset({"abs", "clamp_max", "clamp_min"})
RUNS = {"MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}


class UncompiledError(ValueError):
    """Raised for what the exporter cannot know, such as the time of day or a GPU."""


def tried(make: Callable[[From], To], given: From) -> To | None:
    """What is made of it, or ``None`` where the exporter cannot know that."""
    try:
        return make(given)
    except UncompiledError:
        return None


def curve(promql: str) -> Formula:
    """A curve of a run: a signal as it is, or what follows from its statistics.

    Raises:
        UncompiledError: the exporter does not keep what it reads.
    """
    formula = _compiled(parsed(promql))
    if isinstance(formula, str) and formula.removeprefix("rl_") in DRAWN:
        return formula
    return _kept(formula)


def limit(promql: str) -> Formula:
    """A limit, which follows from statistics of the run.

    Raises:
        UncompiledError: the exporter does not keep what it reads.
    """
    return _kept(_compiled(parsed(promql)))


def _kept(formula: Formula) -> Formula:
    match formula:
        case str() if formula not in SAMPLED and formula != STEP:
            raise UncompiledError(f"{formula} is no statistic that is kept over the steps")
        case [("=~" | "!~"), _, inner]:
            _kept(inner)
        case [_, *parts]:
            for part in parts:
                _kept(part)
    return formula


def _compiled(node: Any) -> Formula:
    match node:
        case NumberLiteral():
            return float(node.val)
        case ParenExpr():
            return _compiled(node.expr)
        case AggregateExpr() if (str(node.op), str(node.modifier)) == ("max", "by (run)"):
            return _compiled(node.expr)  # a run has one series of each
        case VectorSelector() if node.offset is None and node.at is None:
            return _series(node)
    return _operation(node)


def _operation(node: Any) -> Formula:
    match node:
        case UnaryExpr():
            return ["-", 0.0, _compiled(node.expr)]
        case Call() if node.func.name in FUNCTIONS:
            return [node.func.name, *map(_compiled, node.args)]
        case BinaryExpr() if str(node.op) in OPERATORS and not str(node.modifier or ""):
            return [str(node.op), _compiled(node.lhs), _compiled(node.rhs)]
        case BinaryExpr() if str(node.op) == "or" and not str(node.modifier or ""):
            return ["or", *(_once_for_its_runs(_compiled(each)) for each in _alternatives(node))]
    raise UncompiledError(f"{node} is nothing that the exporter can tell")


def _alternatives(node: BinaryExpr) -> list[Any]:
    """What stands between `or`: one for each override, of which there may be hundreds."""
    found = [node.rhs]
    while isinstance(node.lhs, BinaryExpr) and str(node.lhs.op) == "or":
        node = node.lhs
        found.append(node.rhs)
    return [node.lhs, *reversed(found)]


Guards = tuple[tuple[str, str], ...]


def _once_for_its_runs(formula: Formula) -> Formula:
    """The matchers of runs stand before all of it, if all operands have the same."""
    guards = set(_guards(formula, ()))
    if len(guards) != 1:
        return formula
    bare = for_any_run(formula)
    for how, pattern in reversed(guards.pop()):
        bare = [how, pattern, bare]
    return bare


def _guards(formula: Formula, outer: Guards) -> Iterator[Guards]:
    """The matchers of runs of each operand."""
    match formula:
        case str():
            yield outer
        case [("=~" | "!~") as how, pattern, inner]:
            yield from _guards(inner, (*outer, (how, pattern)))
        case [_, *parts]:
            for part in parts:
                yield from _guards(part, outer)


def _series(selector: VectorSelector) -> Formula:
    """A statistic, for all runs or for those that a matcher lets pass."""
    matchers = selector.matchers.matchers
    labels = {each.name: each.value for each in matchers if each.name in LABELS and each.op == MatchOp.Equal}
    inside = ",".join(f'{name}="{labels[name]}"' for name in LABELS if name in labels)
    formula: Formula = f"{selector.name}{{{inside}}}" if inside else str(selector.name)
    for each in matchers:
        if each.name == "run" and str(each.op) in RUNS:
            formula = [RUNS[str(each.op)], each.value, formula]
        elif each.op != MatchOp.Equal or each.name not in (*LABELS, "run"):
            raise UncompiledError(f"{selector} selects by {each.name}")
    return formula


def for_any_run(formula: Formula) -> Formula:
    """The formula without the matchers of runs."""
    match formula:
        case [("=~" | "!~"), _, inner]:
            return for_any_run(inner)
        case [name, *parts]:
            return [name, *map(for_any_run, parts)]
    return formula


def signals(formula: Formula) -> frozenset[str]:
    """The signals of the statistics that it reads."""
    match formula:
        case str():
            return frozenset(_SIGNAL.findall(formula))
        case [("=~" | "!~"), _, inner]:
            return signals(inner)
        case [_, *parts]:
            return frozenset().union(*map(signals, parts))
    return frozenset()


def alternatives(formula: Formula) -> list[Formula]:
    """Those of which it takes the first that there is, or just itself."""
    match formula:
        case ["or", *parts]:
            return [each for part in parts for each in alternatives(part)]
    return [formula]


def constant(formula: Formula) -> float | None:
    """The number that it is at every step, if it is one."""
    match formula:
        case float():
            return formula
        case ["+", float(number), ["*", 0.0, _]]:
            return number
        case ["+", ["-", 0.0, float(number)], ["*", 0.0, _]]:
            return -number
    return None
