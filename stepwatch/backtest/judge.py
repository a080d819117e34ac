"""Which rules fired for which run, when and at what value, and which alerts were inhibited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stepwatch.alerts import promql
from stepwatch.backtest.replay import NO_RUN, START, Prometheus, Replayed, Tick, Unjudged, side_by_side
from stepwatch.config import Config
from stepwatch.rules.alerting import in_force
from stepwatch.rules.routing import Inhibition
from stepwatch.schema.scalars import fits

STATE = "rl_run_state"
"""Not replayed: every run is taken to go on, as it did when its records came."""


@dataclass(frozen=True)
class Condition:
    """One condition of a rule: the whole ``expression``, the ``value`` and its ``limit``, all PromQL."""

    expression: str
    value: str
    limit: str


@dataclass(frozen=True)
class Rule:
    """An alert rule on what a run logs, for runs that ``only`` fits (None: all) and ``without`` does not."""

    alert: str
    severity: str
    topic: str
    expression: str
    conditions: tuple[Condition, ...] = ()
    metrics: frozenset[str] = frozenset()
    only: str | None = None
    without: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its alerts but for the run, as routing sees them."""
        return {"alertname": self.alert, "severity": self.severity, "topic": self.topic}

    def judges(self, run: str) -> bool:
        """Return whether its limits are those of the run."""
        mine = self.only is None or fits(self.only, run)
        return mine and not any(fits(pattern, run) for pattern in self.without)


@dataclass(frozen=True)
class Catalogue:
    """The rules that can be judged, and the names of alerts that cannot, in the order of the rule files."""

    rules: tuple[Rule, ...]
    left_out: tuple[str, ...]


def catalogue(config: Config) -> Catalogue:
    """Return the rules of a configuration."""
    table = tuple(alert for _, alerts in sorted(config.table.groups.items()) for alert in alerts)
    judged = []
    for alert in table:
        if not alert.from_records:
            continue
        name = alert.block.__name__
        for variant in config.variants(name):
            alerts = config.alerts.model_copy(update={name: variant.limits})
            own = config.model_copy(update={"alerts": alerts, "overrides": ()})
            for found in in_force(own, (alert,)):
                whole = found.guarded(*found.conditions, inline=True)
                conditions = tuple(
                    Condition(
                        found.guarded(each, inline=True), found.promql(each.value), found.promql(each.limit)
                    )
                    for each in found.conditions
                )
                judged.append(
                    Rule(
                        alert.name,
                        found.severity,
                        alert.topic,
                        whole,
                        conditions,
                        promql.metrics(whole),
                        variant.only,
                        variant.without,
                    )
                )
    named = {rule.alert for rule in judged}
    on = dict.fromkeys(found.alert.name for found in in_force(config, table))
    return Catalogue(tuple(judged), tuple(name for name in on if name not in named))


def metrics(rules: Iterable[Rule]) -> frozenset[str]:
    """Return the metrics that must be replayed for these rules."""
    return frozenset().union(*(rule.metrics for rule in rules)) - {STATE}


@dataclass(frozen=True)
class Alert:
    """An alert that would have fired: from one record to another (the first is 1), by step too."""

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
    """A run, its signals that rules look at, and its alerts in the order in which they would have fired.

    ``muted``: the steps after which it would have been taken for finished, until the next one.
    """

    run: str
    files: tuple[str, ...]
    format: str
    records: int
    first_step: int | None
    last_step: int | None
    signals: tuple[str, ...]
    alerts: tuple[Alert, ...]
    muted: tuple[int, ...]


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
    """Evaluate each rule's own expression at every record; yield the verdict on each run."""
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
        yield Judged(
            run.run, run.files, run.format, len(run.steps), first, last, run.signals, alerts, run.muted
        )


def _measured(prometheus: Prometheus, run: str, episode: Episode) -> tuple[float | None, float | None]:
    """The value and the limit of the first condition that holds at an episode's first record."""
    time = START + episode.first
    for condition in episode.rule.conditions:
        if run in prometheus.at(condition.expression, time):
            value, limit = (prometheus.at(each, time) for each in (condition.value, condition.limit))
            return value.get(run, value.get(NO_RUN)), limit.get(run, limit.get(NO_RUN))
    return None, None
