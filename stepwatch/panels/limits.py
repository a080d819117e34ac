"""What the limits in a panel are about: which alert, of which signal, and on which side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from exporter.runs.history.formula import Formula
from stepwatch.backtest.expression import Way, comparisons, reads, signals, ways
from stepwatch.backtest.rules import STATE, Rule
from stepwatch.panels import compiling
from stepwatch.panels.dashboard import Panel, Query

FALLS = frozenset({"rl_drawdown", "rl_drawdown_min_over_steps"})
"""Metrics that rise when their signal falls."""


@dataclass(frozen=True)
class Reason:
    """A way for an alert to fire, and the signals that it looks at first."""

    alert: str
    severity: str
    way: Way
    signals: frozenset[str]

    @property
    def side(self) -> str:
        """Where the signal has to be."""
        return "high" if self.way.over != bool(reads(self.way.value) & FALLS) else "low"

    @property
    def is_alone(self) -> bool:
        """Does it look at nothing else?"""
        return signals(self.way.condition) - {STATE.removeprefix("rl_")} <= self.signals

    @cached_property
    def limits(self) -> tuple[Formula, ...]:
        """What the signal is compared with, as far as the exporter can know it."""
        found = (compiling.tried(compiling.limit, limit) for limit in self.way.limits)
        return tuple(compiling.for_any_run(formula) for formula in found if formula is not None)


def reasons(rules: Sequence[Rule]) -> list[Reason]:
    """All ways for these rules to fire."""
    return [
        Reason(rule.alert, rule.severity, way, signals(way.value))
        for rule in rules
        for way in ways(rule.expression)
    ]


def document(query: Query, panel: Panel, known: Sequence[Reason]) -> dict[str, Any]:
    """A limit of a panel as the exporter reads it.

    Raises:
        UncompiledError: the exporter cannot know it, or no rule has it.
    """
    formula = compiling.limit(query.of(""))
    same = _alike(compiling.for_any_run(formula))
    about = panel.signals & compiling.signals(formula) or panel.signals
    loose = [each for each in known if _is_of(each, query) and each.signals & about]
    exact = [each for each in loose if any(limit in same for limit in each.limits)]
    if isinstance(same[-1], float):  # a rule that has another number means something else
        loose = exact
    if not loose:
        raise compiling.UncompiledError(f"no rule has the limit {query.name} of the panel {panel.title}")
    first = (exact or loose)[0]
    return {
        "name": query.name or first.alert,
        "alert": first.alert,
        "severity": query.severity,
        "side": first.side,
        "signal": min(first.signals & about),
        "alone": any(reason.is_alone for reason in exact or loose),
        "formula": formula,
    }


def _alike(formula: Formula) -> list[Formula]:
    """As a rule may write it: variants for some runs each, and a number as it is."""
    found = compiling.alternatives(formula)
    numbers = [number for each in found if (number := compiling.constant(each)) is not None]
    return [*found, *numbers]


def _is_of(reason: Reason, query: Query) -> bool:
    return reason.severity == query.severity and _is_named(query.name, reason.alert)


def _is_named(name: str, alert: str) -> bool:
    """Lines are named after their alert, with more words where it has several; thresholds have no name."""
    return not name or name == alert or name.startswith((f"{alert} ", f"{alert},"))


def of_another(query: Query, rules: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The limits of a curve that is of no run: what rules compare with a number and read the same for.

    None of them stands alone: that a GPU idles says nothing unless a run is to use it.
    """
    metrics = reads(query.expression)
    found = [
        {
            "name": rule["alert"],
            "alert": rule["alert"],
            "severity": rule["labels"]["severity"],
            "side": "high" if comparison.over else "low",
            "signal": query.name,
            "alone": False,
            "formula": comparison.number,
        }
        for rule in rules
        if all(metric in rule["expr"] for metric in metrics)  # to parse hundreds of rules takes seconds
        for comparison in comparisons(rule["expr"])
        if reads(comparison.value) == metrics
    ]
    return [limit for index, limit in enumerate(found) if limit not in found[:index]]
