"""Alerting rules from the table: for each alert the rule itself, and how its message finds the limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import indent
from typing import Any

from stepwatch.alerts.alert import Alert, Way
from stepwatch.alerts.expression import Expression, Limit, Scope, any_of, bracketed, is_number
from stepwatch.alerts.identity import RUN, written
from stepwatch.alerts.statistics import is_in
from stepwatch.config.deployment import Deployment
from stepwatch.config.models import Config
from stepwatch.rules import messages
from stepwatch.rules.limits import ON, SEVERITIES, Limits, override
from stepwatch.schema.quantities import Duration

_KEY = re.compile(r"<(\w+)>")
_MATCHER = "\0"
"""Stands for the matcher of a run while what is around it becomes a format; no PromQL holds it."""


@dataclass(frozen=True)
class InForce:
    """An alert with the limits of a configuration, of one severity.

    Attributes:
        alert: The entry of the table.
        severity: What config.yaml says where the table does not.
        limits: The limits.
    """

    alert: Alert
    severity: str
    limits: Limits

    def scope(self, matcher: str = "") -> Scope:
        """Return what its expressions are rendered for."""
        return Scope(matcher, lambda key: self.limits.promql(key, matcher))

    @property
    def ways(self) -> tuple[Way, ...]:
        """The ways whose limits are set for any run."""
        limits = self.limits
        replaced = limits.base.keys() - limits.overridden
        return tuple(
            way for way in self.alert.ways if way.unset not in replaced and all(map(limits.known, way.keys))
        )

    def condition(self, way: Way) -> Expression:
        """Return where this way holds, whatever the guards of the alert say."""
        if way.unset in self.limits.overridden:
            return way.condition.unless(Limit(way.unset) >= 0)  # an override may take the limit away: NaN
        return way.condition

    def held(self, way: Way) -> Expression:
        """Return where this way makes the alert fire."""
        return self._guarded(self.condition(way))

    @property
    def expression(self) -> Expression:
        """Where the alert fires: the measured value of the first way that holds."""
        return self._guarded(any_of(map(self.condition, self.ways)))

    def _guarded(self, held: Expression) -> Expression:
        alert = self.alert
        if alert.given:
            held = held & alert.given
        if alert.sparing:
            held = held.unless(alert.sparing)
        held = self.switched(held)
        return held.unless(is_in("finished")) if alert.about == "run" else held

    def switched(self, expression: Expression) -> Expression:
        """Leave out the runs for which an override switches the alert off, or says another severity."""
        for key in self.alert.switches:
            expression = self._switched(expression, key, ON)
        if self.alert.severity:
            return expression
        return self._switched(expression, "severity", float(SEVERITIES.index(self.severity)))

    def _switched(self, held: Expression, key: str, wanted: float) -> Expression:
        """Leave out the runs for which an override says otherwise, as last heard of if the alert asks so."""
        if key not in self.limits.overridden:
            return held
        own = override(f"{self.limits.block}.{key}", remembered=not self.alert.keep)
        if self.limits.base[key] != wanted:
            return held & own.equals(wanted)
        return held.unless(own.differs(wanted))

    def passed(self) -> str:
        """Return the PromQL of the limit that was passed, labelled by the words of its way."""
        return self._passed(self.scope(), self.held)

    def asked(self) -> str:
        """Return the same about a run for which the alert fires, as a format that its matcher completes."""
        scope = self.scope(_MATCHER)
        return self._passed(scope, self.condition).replace("%", "%%").replace(_MATCHER, "%[1]s")

    def _passed(self, scope: Scope, holds: Callable[[Way], Expression]) -> str:
        same = written(messages.SUBJECTS[self.alert.subject].identity)
        return f"\nor on ({same}) ".join(
            self._limit(way, scope, bracketed(holds(way).promql(scope))) for way in self.ways
        )

    @property
    def comparison(self) -> messages.Comparison:
        """What its message says of what it compares."""
        measured = tuple(dict.fromkeys(self._in_words(way.measured) for way in self.ways))
        if self.alert.subject == "run":
            return messages.Comparison(measured, recorded=bool(self.alert.style))
        bounds = {(way.limit.promql(self.scope()), way.basis) for way in self.ways}
        limit, basis = bounds.pop()
        if bounds or len(measured) > 1 or not is_number(limit):
            return messages.Comparison(measured, recorded=True)
        return messages.Comparison(measured, recorded=False, limit=float(limit), basis=basis)

    @property
    def wait(self) -> str:
        """How long its condition must hold before it fires; empty for not at all."""
        return str(getattr(self.limits.settings, "for_", self.alert.wait))

    def _in_words(self, text: str) -> str:
        """Fill in limits that words name: ``older than <age>``."""
        return _KEY.sub(lambda match: str(getattr(self.limits.settings, match[1])), text)

    def _limit(self, way: Way, scope: Scope, held: str) -> str:
        limit = way.limit.promql(scope)
        value = f"{limit} + 0 * {held}" if is_number(limit) else f"{limit}\nand {held}"
        for label, text in self._texts(way).items():
            value = f'label_replace(\n{indent(value, "  ")},\n  "{label}", "{text}", "", ""\n)'
        return value

    def _texts(self, way: Way) -> dict[str, str]:
        """What a message says of a way: of runs as one format of ``printf``."""
        measured, basis = self._in_words(way.measured), way.basis and f" ({way.basis})"
        if self.alert.subject == "run":
            return {"text": messages.compared(self.alert, measured, basis)}
        return {"measured": measured, "basis": f"{self.alert.unit}{basis}"}


def in_force(config: Config, table: tuple[Alert, ...]) -> Iterator[InForce]:
    """Yield the alerts that are switched on for any run, in the order of the table."""
    for alert in table:
        limits = Limits(config, alert.block.__name__)
        if all(limits.base.get(key) == ON or key in limits.overridden for key in alert.switches):
            for severity in _severities(alert, limits):
                found = InForce(alert, severity, limits)
                if found.ways:
                    yield found


def _severities(alert: Alert, limits: Limits) -> tuple[str, ...]:
    if alert.severity:
        return (alert.severity,)
    if "severity" in limits.overridden:
        return SEVERITIES
    return (SEVERITIES[int(limits.base["severity"])],)


def rules(config: Config, deployment: Deployment, table: tuple[Alert, ...]) -> list[dict[str, Any]]:
    """Return the rules of a table, as a rule file has them."""
    found = [rule for each in in_force(config, table) for rule in _rules(each, config, deployment)]
    if any(alert.subject == "run" and alert.others for alert in table):
        found.append({"record": messages.FIRING, "expr": _firing(config.intervals.rules)})
    return found


def _firing(interval: Duration) -> str:
    """Return what fires for each run by the last two evaluations.

    What a stopped Prometheus wrote last would otherwise count for five minutes after it was started again.
    """
    recent, firing = Duration(2 * interval.milliseconds), 'ALERTS{alertstate="firing",run!=""}'
    return (
        f"group by ({written(RUN, 'name')}) (\n"
        "  label_replace(\n"
        f"    {firing}\n"
        f"    and count_over_time({firing}[{recent}]),\n"
        '    "name", "$1", "alertname", "(.+)"\n'
        "  )\n"
        ")"
    )


def _rules(found: InForce, config: Config, deployment: Deployment) -> Iterator[dict[str, Any]]:
    alert, wait, comparison = found.alert, found.wait, found.comparison
    if comparison.recorded:
        rule = f"{alert.name}-{found.severity}"
        if alert.subject == "run":
            labels = {"rule": rule, "expr": found.asked()}
            yield {"record": messages.ASKED, "expr": "vector(1)", "labels": labels}
        else:
            yield {"record": messages.PASSED, "expr": found.passed(), "labels": {"rule": rule}}
    yield {
        "alert": alert.name,
        "expr": found.expression.promql(found.scope()),
        **({"for": wait} if wait else {}),
        **({"keep_firing_for": str(config.notify.keep_firing_for)} if alert.keep else {}),
        "labels": {"severity": found.severity, "topic": alert.topic},
        "annotations": messages.message(
            alert, found.severity, comparison, wait, config=config, deployment=deployment
        ),
    }


def code_rules(table: tuple[Alert, ...]) -> list[dict[str, Any]]:
    """Return the rules that record what the codes of alerts mean, for messages to look up."""
    every = {alert.name: alert.codes for alert in table if alert.codes}
    return [
        {
            "record": messages.CODE_INFO,
            "expr": "vector(1)",
            "labels": {codes.label: str(code), **text._asdict()},
        }
        for codes in every.values()
        for code, text in codes.texts.items()
    ]
