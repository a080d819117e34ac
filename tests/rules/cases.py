"""What is said about a rule: which values make it fire, and where each limit lies.

A rule has one `Condition` for each alternative of its expression. From a condition's values and limits
the cases of `variations.py` follow, so that none has to be written down for each alert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from tests.rules.series import Series

Value = float | str | None
"""A number, the name of a state, or None for a series that does not exist."""

Values = Mapping[Series, Value]

ABOVE, FROM, BELOW, UNTIL, EQUAL = ">", ">=", "<", "<=", "=="

_SIDES = {ABOVE: (1,), FROM: (0, 1), BELOW: (-1,), UNTIL: (-1, 0), EQUAL: (0,)}
"""On which sides of its limit a rule fires: below (-1), on (0) or above it (1)."""


class Limit(NamedTuple):
    """The rule fires while the series compares so with `at`; other series are as in `given`."""

    series: Series
    fires: str
    at: float
    given: Values = MappingProxyType({})

    def cases(self, values: Values) -> Iterator[tuple[str, Values, bool]]:
        """Name, values and verdict just below the limit, on it, and just above it."""
        little = abs(self.at) / 1000 or 0.001
        given = "".join(f", {series} {value}" for series, value in self.given.items())
        for side, word in ((-1, "just below"), (0, "at"), (1, "just above")):
            changed = {**values, **self.given, self.series: self.at + side * little}
            yield f"{self.series} {word} {self.at:g}{given}", changed, side in _SIDES[self.fires]


@dataclass(frozen=True)
class Condition:
    """One alternative of a rule's condition.

    Attributes:
        name: What happens, in a few words.
        sick: What differs from a healthy run; with it the rule fires.
        limits: Every limit of this alternative.
        needs: The rule is silent if any of these series is missing, or NaN.
        once: The rule is silent until these are there, whatever their values.
        spares: The rule fires although any of these series is missing.
    """

    name: str
    sick: Values
    limits: tuple[Limit, ...] = ()
    needs: tuple[Series, ...] = ()
    once: tuple[Series, ...] = ()
    spares: tuple[Series, ...] = ()


@dataclass(frozen=True)
class Rule:
    """The cases of one rule about runs.

    Attributes:
        alert: Its name.
        severity: Its severity; two rules of one name differ in it.
        block: The block of config.yaml that holds its limits.
        conditions: Each alternative of its expression.
        silent: Runs that look sick and are not: what differs from a healthy run.
        wait: For how many seconds the condition must hold (`for`).
        keep: How long the alert outlasts its condition, in seconds (`keep_firing_for`).
        of_ended: It is about runs that have finished, and therefore speaks of them.
    """

    alert: str
    severity: str
    block: str
    conditions: tuple[Condition, ...]
    silent: Mapping[str, Values] = field(default_factory=dict)
    wait: int = 0
    keep: int = 600
    of_ended: bool = False

    def __str__(self) -> str:
        """Unique among the rules."""
        return f"{self.alert}-{self.severity}"
