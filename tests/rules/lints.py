"""What is wrong with a rule by its looks: what breaks in silence once there are samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    MatchOp,
    MatrixSelector,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
    walk,
)

from stepwatch.schema.scalars import MAX_INTERVAL
from tests.rules import expressions, labelled, served
from tests.rules.served import COUNTER, GAUGE, METRICS

JsonObject = dict[str, Any]
Lint = Callable[[JsonObject], Iterator[str]]


def _nodes(rule: JsonObject, *kinds: type) -> Iterator[Any]:
    found: list[Any] = []
    walk(expressions.parse(rule["expr"]), found.append)
    return (each for each in found if isinstance(each, kinds))


def unknown_metrics(rule: JsonObject) -> Iterator[str]:
    """A misspelt name gives no series, and no alert."""
    for selector in _nodes(rule, VectorSelector):
        for name in served.asked(selector):
            if name not in METRICS:
                yield f"{name} is not served by any exporter in tests/rules/served.py"


def impossible_joins(rule: JsonObject) -> Iterator[str]:
    """Series are joined by labels that both sides have; of an unknown metric none are known."""
    return iter(()) if any(unknown_metrics(rule)) else labelled.faults(expressions.parse(rule["expr"]))


def no_comparison(rule: JsonObject) -> Iterator[str]:
    """An expression that compares nothing holds for whatever exists."""
    if not _compares(expressions.parse(rule["expr"])) and rule["alert"] != "Watchdog":
        yield "it fires whatever the values are"


_COMPARISONS = {"==", "!=", ">", ">=", "<", "<="}


def _compares(node: Any) -> bool:
    match node:
        case BinaryExpr():
            return _compares_either(node)
        case AggregateExpr() | ParenExpr() | UnaryExpr() | SubqueryExpr():
            return _compares(node.expr)
        case Call():
            return node.func.name.startswith("absent") or any(map(_compares, node.args))
    return False


def _compares_either(node: BinaryExpr) -> bool:
    match str(node.op):
        case operator if operator in _COMPARISONS:
            return not (node.modifier and node.modifier.return_bool)
        case "or":
            return _compares(node.lhs) and _compares(node.rhs)
        case "unless":
            return _compares(node.lhs)
    return _compares(node.lhs) or _compares(node.rhs)


_VOLATILE = {"step", "value", "reason"}
"""Labels that change while a fault lasts: each change is another alert, which waits and is reported again."""


_MOVING = re.compile(r"[$](?:value|labels|externalLabels)|\b(?:query|now)\b")


def volatile_labels(rule: JsonObject) -> Iterator[str]:
    """An alert whose labels move is never the same one twice."""
    for name, value in rule["labels"].items():
        if "{{" in value and _MOVING.search(re.sub(r'"[^"]*"', "", value)):
            yield f"label {name} is not the same at all times: {value}"
    labels = labelled.of(expressions.parse(rule["expr"])) or frozenset()
    yield from (f"label {name} moves" for name in sorted(_VOLATILE & labels))


_OF_COUNTERS = {"rate", "increase", "irate", "resets"}
_OF_GAUGES = {"delta", "idelta", "deriv", "predict_linear", "double_exponential_smoothing", "holt_winters"}


def wrong_type(rule: JsonObject) -> Iterator[str]:
    """To `increase` each fall of a gauge is a restart; to `delta` a restart is a fall."""
    for call in _nodes(rule, Call):
        wanted = COUNTER if call.func.name in _OF_COUNTERS else GAUGE
        if call.func.name in _OF_COUNTERS | _OF_GAUGES:
            for selector in expressions.selectors(call):
                names = [name for name in served.asked(selector) if name in METRICS]
                wrong = [name for name in names if METRICS[name].type != wanted]
                yield from (f"{call.func.name} is for a {wanted}, which {name} is not" for name in wrong)


def hasty_absence(rule: JsonObject) -> Iterator[str]:
    """A scrape may be lost, and right after a start nothing has been scraped yet."""
    absences = (call.func.name for call in _nodes(rule, Call) if call.func.name.startswith("absent"))
    if not rule.get("for"):
        yield from (f"{name} without `for`" for name in absences)


def odd_patterns(rule: JsonObject) -> Iterator[str]:
    """A pattern is for the whole value, and for more than one."""
    for selector in _nodes(rule, VectorSelector):
        for each in selector.matchers.matchers:
            if each.op in (MatchOp.Re, MatchOp.NotRe):
                yield from (f"pattern {each.name} {each.value!r} {fault}" for fault in _odd(each))


_PATTERN = re.compile(r"[][.*+?|(){}^$\\]")


def _odd(matcher: Any) -> Iterator[str]:
    if matcher.value.startswith("^") or matcher.value.endswith("$"):
        yield "is anchored anyway"
    if not _PATTERN.search(matcher.value):
        yield "is one value: compare it"
    if matcher.op == MatchOp.Re and re.fullmatch(matcher.value, ""):
        yield "also takes series without the label"
    if matcher.op == MatchOp.NotRe and re.fullmatch(matcher.value, ""):
        yield "takes only series with the label"


def short_ranges(rule: JsonObject) -> Iterator[str]:
    """A range that may hold one sample says nothing of two; intervals may be as long as config.yaml takes."""
    for node in _nodes(rule, MatrixSelector, SubqueryExpr):
        if node.range.total_seconds() < 2 * MAX_INTERVAL.seconds:
            yield f"{node} is shorter than two scrapes, which may be {MAX_INTERVAL} apart"


_FRAGILE = {"topk", "bottomk", "limitk", "limit_ratio"}


def fragile(rule: JsonObject) -> Iterator[str]:
    """Which series are the topmost changes from one evaluation to the next, and with it the alert."""
    yield from (f"{node.op}" for node in _nodes(rule, AggregateExpr) if str(node.op) in _FRAGILE)


LINTS: tuple[Lint, ...] = (
    unknown_metrics,
    impossible_joins,
    no_comparison,
    volatile_labels,
    wrong_type,
    hasty_absence,
    odd_patterns,
    short_ranges,
    fragile,
)


def faults(rule: JsonObject) -> list[str]:
    """What all lints say of a rule."""
    return [f"{lint.__name__}: {fault}" for lint in LINTS for fault in lint(rule)]


def uneven_waits(rules: Iterable[JsonObject]) -> Iterator[str]:
    """Of rules with one alert's name either all wait or none: else the lesser one comes last."""
    waits: dict[str, set[bool]] = {}
    for rule in rules:
        waits.setdefault(rule["alert"], set()).add("for" in rule)
    yield from (
        f"{alert}: one rule waits, another does not" for alert, both in waits.items() if len(both) > 1
    )
