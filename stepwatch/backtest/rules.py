"""The rules of the table of alerts that an old log alone decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepwatch.alerts.catalogue import GROUPS
from stepwatch.alerts.model.expression import Series
from stepwatch.config import Config
from stepwatch.rules.alerting import in_force
from stepwatch.schema.names import fits

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
    """An alert rule about what a run logs, with the limits of some runs.

    Attributes:
        alert: The alert.
        severity: Its severity.
        topic: Its topic.
        expression: Where it holds.
        conditions: Its conditions, of which the first that holds is reported.
        metrics: What it reads.
        only: The pattern of the runs that it judges; None for all.
        without: Patterns of runs that other limits judge.
    """

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
    table = tuple(alert for _, alerts in sorted(GROUPS.items()) for alert in alerts)
    judged = []
    for alert in table:
        if not alert.from_records:
            continue
        name = alert.block.__name__
        for variant in config.variants(name):
            alerts = config.alerts.model_copy(update={name: variant.limits})
            own = config.model_copy(update={"alerts": alerts, "overrides": ()})
            for found in in_force(own, (alert,)):
                scope, whole = found.scope(), found.expression
                conditions = tuple(
                    Condition(*(part.promql(scope) for part in (found.guarded(each), each.value, each.limit)))
                    for each in found.conditions
                )
                read = frozenset(part.metric for part in whole.parts() if isinstance(part, Series))
                judged.append(
                    Rule(
                        alert.name,
                        found.severity,
                        alert.topic,
                        whole.promql(scope),
                        conditions,
                        read,
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
