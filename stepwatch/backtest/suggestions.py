"""For each limit: with which value another run would be reported, and with which one less."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, NamedTuple

from stepwatch.backtest.limits import Limit, Value
from stepwatch.backtest.rules import Rule, catalogue
from stepwatch.backtest.server import Prometheus, Tick, side_by_side
from stepwatch.config import Config

Runs = frozenset[str]


@dataclass(frozen=True)
class Change:
    """The first value at which an alert fires for other runs: ``also`` these, ``no_longer`` those."""

    value: Value
    also: tuple[str, ...]
    no_longer: tuple[str, ...]


@dataclass(frozen=True)
class Suggestion:
    """What came of trying a limit for one of its alerts, down to ``lowest`` and up to ``highest``.

    ``fires_on`` are the runs on which it fires at all as the limit is ``now``. ``lower`` is the
    nearest value below at which these are others, ``higher`` the nearest above; None if there is none.
    """

    limit: str
    alert: str
    severity: str
    now: Value
    lowest: Value
    highest: Value
    fires_on: tuple[str, ...]
    lower: Change | None
    higher: Change | None

    @property
    def reached(self) -> bool:
        """Does any run come near the limit?"""
        return bool(self.fires_on or self.lower or self.higher)

    def document(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


class _Alert(NamedTuple):
    name: str
    severity: str


ByAlert = dict[_Alert, tuple[Rule, ...]]
"""The rules of each alert: one for all runs, or one for each override and the rest."""

Tried = Callable[[Value], ByAlert]
"""The rules with another value of a limit."""


class Trial:
    """Tries limits on runs that a Prometheus holds.

    Args:
        prometheus: Holds the runs.
        config: The limits as they are.
    """

    def __init__(self, prometheus: Prometheus, config: Config) -> None:
        self._prometheus = prometheus
        self._now = _by_alert(config)
        self._known: dict[str, Runs] = {}

    def suggestions(self, limits: Sequence[Limit], tick: Tick) -> Iterator[Suggestion]:
        """Those for limits that move a rule, in their order; ``tick`` is called for each limit."""
        for found in side_by_side(self._of, limits, tick):
            yield from found

    def _of(self, limit: Limit) -> list[Suggestion]:
        @cache
        def rules(value: Value) -> ByAlert:
            return _by_alert(limit.changed(value))

        lower, higher = limit.lower(), limit.higher()
        other = rules((lower or higher or [limit.now])[-1])
        moved = [alert for alert, found in self._now.items() if other.get(alert) != found]
        return [self._suggestion(limit, alert, lower, higher, rules) for alert in moved]

    def _suggestion(
        self, limit: Limit, alert: _Alert, lower: Sequence[Value], higher: Sequence[Value], rules: Tried
    ) -> Suggestion:
        def fires(value: Value) -> Runs:
            return self._fires(rules(value).get(alert, ()))

        now = self._fires(self._now[alert])
        return Suggestion(
            limit.key,
            alert.name,
            alert.severity,
            limit.now,
            lower[-1] if lower else limit.now,
            higher[-1] if higher else limit.now,
            tuple(sorted(now)),
            _change(fires, lower, now),
            _change(fires, higher, now),
        )

    def _fires(self, rules: Sequence[Rule]) -> Runs:
        """The runs on which one of them holds at all."""
        return frozenset(run for rule in rules for run in self._held(rule.expression) if rule.judges(run))

    def _held(self, expression: str) -> Runs:
        if expression not in self._known:
            held = self._prometheus.records(expression)
            self._known[expression] = frozenset(run for run, records in held.items() if records)
        return self._known[expression]


def _change(fires: Callable[[Value], Runs], values: Sequence[Value], now: Runs) -> Change | None:
    """The first of the values that changes the outcome; if it does, so do all beyond it."""
    if not values or fires(values[-1]) == now:
        return None
    first = values[bisect_left(values, True, key=lambda value: fires(value) != now)]  # noqa: FBT003  (sought)
    runs = fires(first)
    return Change(first, tuple(sorted(runs - now)), tuple(sorted(now - runs)))


def _by_alert(config: Config) -> ByAlert:
    found: ByAlert = {}
    for rule in catalogue(config).rules:
        alert = _Alert(rule.alert, rule.severity)
        found[alert] = (*found.get(alert, ()), rule)
    return found
