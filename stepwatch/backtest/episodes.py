"""Which rules fired for which run, when and at what value, and the notifications that follow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stepwatch.alerts.incidents import Pair
from stepwatch.backtest.openmetrics_writer import START, Replayed
from stepwatch.backtest.results import Alert, Judged
from stepwatch.backtest.rules import Rule
from stepwatch.backtest.server import NO_RUN, Prometheus, Tick, side_by_side


@dataclass(frozen=True)
class Judge:
    """Asks each rule's own expression at every record of every run."""

    prometheus: Prometheus
    rules: Sequence[Rule]
    inhibitions: Sequence[Inhibition]

    def judge(self, runs: Sequence[Replayed], tick: Tick) -> Iterator[Judged]:
        """The verdict on each run; ``tick`` is called for each rule."""
        asked = (rule.expression for rule in self.rules)
        held = list(side_by_side(self.prometheus.records, asked, tick))
        for run in runs:
            yield self._run(
                run,
                [
                    found.get(run.run, {}) if rule.judges(run.run) else {}
                    for rule, found in zip(self.rules, held, strict=True)
                ],
            )

    def _run(self, run: Replayed, held: Sequence[Iterable[int]]) -> Judged:
        """``held``: the records at which each rule holds."""
        rules = zip(self.rules, held, strict=True)
        found = [episode for rule, records in rules for episode in episodes(rule, records)]
        found.sort(key=lambda episode: episode.first)
        alerts = tuple(self._alert(run, episode, found) for episode in found)
        first, last = (min(run.steps), max(run.steps)) if run.steps else (None, None)
        return Judged(run.run, run.files, run.format, len(run.steps), first, last, run.signals, alerts)

    def _alert(self, run: Replayed, episode: Episode, others: Sequence[Episode]) -> Alert:
        value, threshold = self._measured(run.run, episode)
        return Alert(
            episode.rule.alert,
            episode.rule.severity,
            episode.first,
            episode.last,
            run.steps[episode.first - 1],
            run.steps[episode.last - 1],
            value,
            threshold,
            inhibited(episode, others, self.inhibitions),
        )

    def _measured(self, run: str, episode: Episode) -> tuple[float | None, float | None]:
        """What the rule looked at when it began to hold, and the limit that it passed."""
        time = START + episode.first
        for each in episode.rule.conditions:
            if run in self.prometheus.at(each.expression, time):
                return self._at(each.value, run, time), self._at(each.limit, run, time)
        return None, None

    def _at(self, expression: str, run: str, time: int) -> float | None:
        found = self.prometheus.at(expression, time)
        return found.get(run, found.get(NO_RUN))


APART = 10
"""Times of one alert that are fewer records apart are one alert: `keep_firing_for` holds it that long."""


@dataclass(frozen=True)
class Episode:
    """A rule that held for a run: from one record to another (the first is 1), not always in between."""

    rule: Rule
    first: int
    last: int


def episodes(rule: Rule, records: Iterable[int]) -> Iterator[Episode]:
    """The episodes of a rule that holds at these records."""
    first = last = 0
    for record in sorted(records):
        if first and record - last >= APART:
            yield Episode(rule, first, last)
            first = record
        first, last = first or record, record
    if first:
        yield Episode(rule, first, last)


@dataclass(frozen=True)
class Inhibition:
    """A rule of Alertmanager: what fires on one side is not sent on the other."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...]

    def holds_back(self, source: Mapping[str, str], target: Mapping[str, str]) -> bool:
        """Is an alert with the second labels not sent while one with the first fires?"""
        return (
            all(source.get(label) == target.get(label) for label in self.equal)
            and all(_matches(matcher, source) for matcher in self.source)
            and all(_matches(matcher, target) for matcher in self.target)
        )


def inhibitions(pairs: Iterable[Pair]) -> list[Inhibition]:
    """Return the rules of Alertmanager for pairs of cause and effect."""
    return [
        Inhibition(
            tuple(rule["source_matchers"]), tuple(rule["target_matchers"]), tuple(rule.get("equal", ()))
        )
        for pair in pairs
        for rule in pair.rules
    ]


_MATCHER = re.compile(r'(\w+)(!?=~?|!~)"(.*)"')


def _matches(matcher: str, labels: Mapping[str, str]) -> bool:
    found = _MATCHER.fullmatch(matcher)
    if found is None:
        raise ValueError(f"{matcher} is no matcher of Alertmanager")
    name, operator, wanted = found.groups()
    value = labels.get(name, "")
    same = bool(re.fullmatch(wanted, value)) if "~" in operator else value == wanted
    return same != operator.startswith("!")


def inhibited(episode: Episode, others: Sequence[Episode], rules: Sequence[Inhibition]) -> bool:
    """Would the alert not have been sent when it began, because of another one of its run?"""
    firing = [other.rule for other in others if other.first <= episode.first < other.last + APART]
    run = {"run": "any"}
    return any(
        rule.holds_back({**run, **other.labels}, {**run, **episode.rule.labels})
        for other in firing
        for rule in rules
        if other != episode.rule
    )
