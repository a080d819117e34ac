"""Formulas of curves and limits: PromQL as generate.py compiled it, for one run at a time.

A formula is a number; the name of a statistic of the run, as ``samples.series`` writes it; or a list of
an operator and what it is for. Values are those that Prometheus would give, ``None`` where it has none.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from exporter.runs.history.samples import Table

Formula = float | str | list[Any]
Values = list[float | None]


def _divided(above: float, below: float) -> float:
    if below:
        return above / below
    # As IEEE 754 has it, which Python refuses.
    return (
        math.nan
        if not above or math.isnan(above)
        else math.copysign(math.inf, above) * math.copysign(1, below)
    )


_OF_TWO: dict[str, Callable[[float, float], float | None]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "clamp_min": max,
    "clamp_max": min,
    # A comparison lets pass what it holds for.
    ">": lambda left, right: left if left > right else None,
    "<": lambda left, right: left if left < right else None,
}
_ARITY = {**dict.fromkeys(_OF_TWO, 2), "abs": 1}


def of_run(formula: Formula, run: str) -> Formula | None:
    """What is left of it for one run, or ``None`` if it is of other runs."""
    match formula:
        case [("=~" | "!~") as how, str(pattern), inner]:
            fits = re.fullmatch(pattern, run, re.DOTALL) is not None
            return of_run(inner, run) if fits is (how == "=~") else None
        case ["or", *parts]:
            left = [each for part in parts if (each := of_run(part, run)) is not None]
            return ["or", *left] if left else None
        case [name, *parts]:
            own = [of_run(part, run) for part in parts]
            return None if None in own else [name, *own]
    return formula


def values(formula: Formula, table: Table) -> Values:
    """The value at each step of the table, of a formula that ``of_run`` gave."""
    match formula:
        case str():
            return table.column(formula)
        case [str(name), *parts]:
            return _combined(name, [values(part, table) for part in parts])
    return [cast("float", formula)] * len(table.steps)


def _combined(name: str, parts: Sequence[Values]) -> Values:
    if name == "abs":
        return [None if value is None else abs(value) for value in parts[0]]
    if name == "or":
        return [next((each for each in row if each is not None), None) for row in zip(*parts, strict=True)]
    of_two = _OF_TWO[name]
    return [
        None if left is None or right is None else of_two(left, right)
        for left, right in zip(*parts, strict=True)
    ]


def checked(formula: Any) -> Formula:
    """What was read from a file, if it is a formula.

    Raises:
        ValueError: it is none.
    """
    match formula:
        case str() | list() if not formula:
            raise ValueError("an empty formula")
        case str():
            return formula
        case [("=~" | "!~"), str(pattern), inner]:
            _compiled(pattern)
            checked(inner)
            return formula
        case [str(name), *parts] if parts and len(parts) == _ARITY.get(name, len(parts) * (name == "or")):
            for part in parts:
                checked(part)
            return formula
        case bool():
            pass
        case int() | float():
            return float(formula)
    raise ValueError(f"{str(formula)[:80]!r} is no formula")


def _compiled(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as problem:
        raise ValueError(f"{pattern[:80]!r} is no pattern of runs: {problem}") from problem
