"""For each limit: with which value an alert would fire on other runs, and with which one on fewer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from pydantic import ValidationError

from stepwatch.backtest.judge import Rule, catalogue
from stepwatch.backtest.replay import Prometheus, Tick, side_by_side
from stepwatch.config import Config
from stepwatch.config.loading import with_value
from stepwatch.schema.section import Section

REACH = 8  # values are tried from an eighth of a limit to eight times it
INTRODUCTION = (
    f"Each limit alone, tried from 1/{REACH} to {REACH} times its value, within what the configuration "
    "allows, in steps of two digits: the value from which on an alert fires on other runs."
)

MOST_NAMES = 3

Value = int | float
Runs = frozenset[str]


@dataclass(frozen=True)
class Limit:
    """A number under `alerts`, by its keys there."""

    config: Config
    path: tuple[str, ...]
    now: Value

    @property
    def key(self) -> str:
        """The key as `--set` takes it."""
        return ".".join(("alerts", *self.path))

    def changed(self, value: Value) -> Config:
        """Return the configuration with another value here. Raises ``ValidationError``."""
        name, *inside = self.path
        old = self.config.alerts.block(name)
        block = type(old).model_validate(with_value(old.plain(), tuple(inside), value))
        alerts = type(self.config.alerts).model_validate({**dict(self.config.alerts), name: block})
        return type(self.config).model_validate({**dict(self.config), "alerts": alerts})

    def lower(self) -> list[Value]:
        """Return the values below, in two digits, from the next one on, that the configuration takes."""
        return self._accepted([value for value in reversed(self._all()) if value < self.now])

    def higher(self) -> list[Value]:
        """Return the same above."""
        return self._accepted([value for value in self._all() if value > self.now])

    def _all(self) -> list[Value]:
        two_digits = (float(f"{digits}e{power}") for power in range(-13, 13) for digits in range(10, 100))
        within = [value for value in two_digits if self.now / REACH <= value <= self.now * REACH]
        if self._refuses(float(self.now)):
            return [int(value) for value in within if value.is_integer()]
        return list(within)

    def _accepted(self, values: list[Value]) -> list[Value]:
        return values[: bisect_left(values, True, key=self._refuses)]  # noqa: FBT003  (what is looked for)

    def _refuses(self, value: Value) -> bool:
        try:
            self.changed(value)
        except ValidationError:
            return True
        return False


def limits(config: Config) -> Iterator[Limit]:
    """Yield every limit that is a number above 0 of an alert that is on."""
    for name, block in config.alerts:
        if block.enabled:
            yield from (Limit(config, (name, *path), value) for path, value in _numbers(block))


def _numbers(section: Section) -> Iterator[tuple[tuple[str, ...], Value]]:
    for key, value in section:
        if isinstance(value, Section):
            yield from (((key, *path), number) for path, number in _numbers(value))
        elif isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            yield (key,), value


@dataclass(frozen=True)
class Change:
    """The first value at which an alert fires for other runs: ``also`` these, ``no_longer`` those."""

    value: Value
    also: tuple[str, ...]
    no_longer: tuple[str, ...]

    def text(self, sign: str) -> str:
        """Return the change in words: ``at <= 0.2 also on a, b``."""
        sides = (("also on", self.also), ("no longer on", self.no_longer))
        return (
            f"at {sign} {self.value:g} {' and '.join(f'{how} {_few(runs)}' for how, runs in sides if runs)}"
        )


def _few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class Suggestion:
    """What came of trying a limit: the nearest values on either side at which it fires on other runs."""

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
        """Whether any run comes near the limit."""
        return bool(self.fires_on or self.lower or self.higher)

    @property
    def sides(self) -> tuple[str, str]:
        """What a lower limit would change, and what a higher one; the first says it where neither does."""
        lowest, highest = f"{self.lowest:g}", f"{self.highest:g}"
        if not self.lower and not self.higher:
            return f"no change between {lowest} and {highest}", ""
        return (
            self.lower.text("<=") if self.lower else f"no change down to {lowest}",
            self.higher.text(">=") if self.higher else f"no change up to {highest}",
        )


def unreached(suggestions: Sequence[Suggestion]) -> str:
    """Return the limits that no run comes near, in one line, if any."""
    reached = {suggestion.limit for suggestion in suggestions if suggestion.reached}
    keys = dict.fromkeys(each.limit for each in suggestions if each.limit not in reached)
    if not keys:
        return ""
    return f"No run comes near these, at 1/{REACH} and at {REACH} times the limit alike: {', '.join(keys)}."


ByAlert = dict[tuple[str, str], tuple[Rule, ...]]
"""The rules of each alert, by name and severity: one for all runs, or one for each override and the rest."""


class Trial:
    """Tries limits on runs that a Prometheus holds."""

    def __init__(self, prometheus: Prometheus, config: Config) -> None:
        self._prometheus = prometheus
        self._now = _by_alert(config)
        self._known: dict[str, Runs] = {}

    def suggestions(self, limits: Sequence[Limit], tick: Tick) -> Iterator[Suggestion]:
        """Yield those for limits that move a rule, in their order; ``tick`` is called for each limit."""
        for found in side_by_side(self._of, limits, tick):
            yield from found

    def _of(self, limit: Limit) -> list[Suggestion]:
        @cache
        def rules(value: Value) -> ByAlert:
            return _by_alert(limit.changed(value))

        def suggestion(alert: tuple[str, str]) -> Suggestion:
            def fires(value: Value) -> Runs:
                return self._fires(rules(value).get(alert, ()))

            now = self._fires(self._now[alert])
            return Suggestion(
                limit.key,
                *alert,
                limit.now,
                lower[-1] if lower else limit.now,
                higher[-1] if higher else limit.now,
                tuple(sorted(now)),
                _change(fires, lower, now),
                _change(fires, higher, now),
            )

        lower, higher = limit.lower(), limit.higher()
        other = rules((lower or higher or [limit.now])[-1])
        return [suggestion(alert) for alert, found in self._now.items() if other.get(alert) != found]

    def _fires(self, rules: Sequence[Rule]) -> Runs:
        """Return the runs on which one of the rules holds at all."""
        for rule in rules:
            if rule.expression not in self._known:
                held = self._prometheus.records(rule.expression)
                self._known[rule.expression] = frozenset(run for run, records in held.items() if records)
        return frozenset(run for rule in rules for run in self._known[rule.expression] if rule.judges(run))


def _change(fires: Callable[[Value], Runs], values: Sequence[Value], now: Runs) -> Change | None:
    """Return the first of the values that changes the outcome; if it does, so do all beyond it."""
    if not values or fires(values[-1]) == now:
        return None
    first = values[bisect_left(values, True, key=lambda value: fires(value) != now)]  # noqa: FBT003  (sought)
    runs = fires(first)
    return Change(first, tuple(sorted(runs - now)), tuple(sorted(now - runs)))


def _by_alert(config: Config) -> ByAlert:
    found: ByAlert = {}
    for rule in catalogue(config).rules:
        key = rule.alert, rule.severity
        found[key] = (*found.get(key, ()), rule)
    return found
