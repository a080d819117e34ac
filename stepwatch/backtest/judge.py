"""Which rules fired for which run, when and at what value, and which alerts were inhibited."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stepwatch.alerts.incidents import Pair
from stepwatch.backtest.replay import Replayed, Unjudged
from stepwatch.backtest.rules import Rule
from stepwatch.backtest.server import NO_RUN, START, Prometheus, Tick, side_by_side


@dataclass(frozen=True)
class Alert:
    """An alert that would have fired: from one record to another (the first is 1), by step too.

    ``value`` and ``threshold`` are those of its first record, in the unit of the signal.
    """

    alert: str
    severity: str
    first_record: int
    last_record: int
    first_step: int
    last_step: int
    value: float | None
    threshold: float | None
    inhibited: bool


@dataclass(frozen=True)
class Judged:
    """A run, its signals that rules look at, and its alerts in the order in which they would have fired."""

    run: str
    files: tuple[str, ...]
    format: str
    records: int
    first_step: int | None
    last_step: int | None
    signals: tuple[str, ...]
    alerts: tuple[Alert, ...]


@dataclass(frozen=True)
class Results:
    """All verdicts. ``left_out``: alerts that count the time of a clock, or ask other exporters."""

    runs: tuple[Judged | Unjudged, ...]
    left_out: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the results as JSON holds them."""
        return {"runs": [asdict(run) for run in self.runs], "left_out": list(self.left_out)}

    @property
    def judged(self) -> list[Judged]:
        """The runs that could be judged."""
        return [run for run in self.runs if isinstance(run, Judged)]

    def fired(self, *severities: str) -> bool:
        """Return whether an alert of these severities would have fired for any run."""
        return any(alert.severity in severities for run in self.judged for alert in run.alerts)


APART = 10
"""Times of one alert that are fewer records apart are one alert: `keep_firing_for` holds it that long."""


@dataclass(frozen=True)
class Episode:
    """A rule that held for a run: from one record to another (the first is 1), not always in between."""

    rule: Rule
    first: int
    last: int


def episodes(rule: Rule, records: Iterable[int]) -> Iterator[Episode]:
    """Yield the episodes of a rule that holds at these records."""
    first = last = 0
    for record in sorted(records):
        if first and record - last >= APART:
            yield Episode(rule, first, last)
            first = record
        first, last = first or record, record
    if first:
        yield Episode(rule, first, last)


_MATCHER = re.compile(r'(\w+)(!?=~?|!~)"(.*)"')


@dataclass(frozen=True)
class Inhibition:
    """A rule of Alertmanager: what fires on one side is not sent on the other."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...]

    def inhibits(self, source: Mapping[str, str], target: Mapping[str, str]) -> bool:
        """Return whether an alert with the second labels is not sent while one with the first fires."""
        return (
            all(source.get(label) == target.get(label) for label in self.equal)
            and all(_matches(matcher, source) for matcher in self.source)
            and all(_matches(matcher, target) for matcher in self.target)
        )


def _matches(matcher: str, labels: Mapping[str, str]) -> bool:
    found = _MATCHER.fullmatch(matcher)
    if found is None:
        raise ValueError(f"{matcher} is not a matcher of Alertmanager")
    name, operator, wanted = found.groups()
    value = labels.get(name, "")
    same = bool(re.fullmatch(wanted, value)) if "~" in operator else value == wanted
    return same != operator.startswith("!")


def inhibitions(pairs: Iterable[Pair]) -> list[Inhibition]:
    """Return the rules of Alertmanager for pairs of cause and effect."""
    return [
        Inhibition(
            tuple(rule["source_matchers"]), tuple(rule["target_matchers"]), tuple(rule.get("equal", ()))
        )
        for pair in pairs
        for rule in pair.rules
    ]


def inhibited(episode: Episode, others: Sequence[Episode], rules: Sequence[Inhibition]) -> bool:
    """Return whether another alert of the run would have inhibited this one when it began."""
    firing = [other.rule for other in others if other.first <= episode.first < other.last + APART]
    run = {"run": "any"}
    return any(
        rule.inhibits({**run, **other.labels}, {**run, **episode.rule.labels})
        for other in firing
        for rule in rules
        if other != episode.rule
    )


def judge(
    prometheus: Prometheus,
    rules: Sequence[Rule],
    inhibitions: Sequence[Inhibition],
    runs: Sequence[Replayed],
    tick: Tick,
) -> Iterator[Judged]:
    """Evaluate each rule's own expression at every record; yield the verdict on each run.

    ``tick`` is called for each rule.
    """
    held = list(side_by_side(prometheus.records, (rule.expression for rule in rules), tick))
    for run in runs:
        found = [
            episode
            for rule, records in zip(rules, held, strict=True)
            if rule.judges(run.run)
            for episode in episodes(rule, records.get(run.run, {}))
        ]
        found.sort(key=lambda episode: episode.first)
        alerts = tuple(
            Alert(
                episode.rule.alert,
                episode.rule.severity,
                episode.first,
                episode.last,
                run.steps[episode.first - 1],
                run.steps[episode.last - 1],
                *_measured(prometheus, run.run, episode),
                inhibited(episode, found, inhibitions),
            )
            for episode in found
        )
        first, last = (min(run.steps), max(run.steps)) if run.steps else (None, None)
        yield Judged(run.run, run.files, run.format, len(run.steps), first, last, run.signals, alerts)


def _measured(prometheus: Prometheus, run: str, episode: Episode) -> tuple[float | None, float | None]:
    """The value and the limit of the first condition that holds at an episode's first record."""
    time = START + episode.first
    for condition in episode.rule.conditions:
        if run in prometheus.at(condition.expression, time):
            value, limit = (prometheus.at(each, time) for each in (condition.value, condition.limit))
            return value.get(run, value.get(NO_RUN)), limit.get(run, limit.get(NO_RUN))
    return None, None
