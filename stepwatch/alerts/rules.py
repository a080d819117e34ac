"""Prometheus rules from the table: for each alert the rule itself, and a record of the limit it passed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stepwatch.alerts import messages
from stepwatch.alerts.expression import Expression, Raw, Scope, any_of, bracketed
from stepwatch.alerts.limits import ON, SEVERITIES, Limits
from stepwatch.alerts.statistics import is_in
from stepwatch.alerts.table import Alert, Way
from stepwatch.config.models import Config
from stepwatch.deployment import Deployment

_KEY = re.compile(r"<(\w+)>")


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
        return tuple(
            way
            for way in self.alert.ways
            if all(map(self.limits.known, way.keys)) and way.unset not in self.limits.base
        )

    def condition(self, way: Way) -> Expression:
        """Return where this way holds, whatever the guards of the alert say."""
        if way.unset in self.limits.overridden:
            return way.condition.unless(Raw(f"{self.limits.promql(way.unset)}"))
        return way.condition

    @property
    def expression(self) -> Expression:
        """Where the alert fires: the measured value of the first way that holds."""
        return self._guarded(any_of(map(self.condition, self.ways)))

    def _guarded(self, held: Expression) -> Expression:
        if self.alert.given:
            held = held & self.alert.given
        if self.alert.sparing:
            held = held.unless(self.alert.sparing)
        for key in filter(None, ("enabled", self.alert.level)):
            if key in self.limits.overridden:
                held = held & Raw(f"{self.limits.promql(key)} == {ON:g}")
        if "severity" in self.limits.overridden:
            held = held & Raw(f"{self.limits.promql('severity')} == {SEVERITIES.index(self.severity)}")
        if self.alert.about == "run":
            held = held.unless(is_in("finished"))
        return held

    def passed(self) -> str:
        """Return the PromQL of the limit that was passed, labelled by the words of its way."""
        scope, same = self.scope(), ", ".join(messages.SUBJECTS[self.alert.about].identity)
        return f"\nor on ({same}) ".join(self._passed(way, scope) for way in self.ways)

    @property
    def facts(self) -> messages.Facts:
        """What its message says."""
        scope = self.scope()
        measured = dict.fromkeys(self._in_words(way.measured) for way in self.ways)
        bounds = {(way.limit.promql(scope), way.basis) for way in self.ways}
        limit, basis = bounds.pop()
        same = self.alert.about != "run" and not bounds and len(measured) == 1 and _is_number(limit)
        return messages.Facts(tuple(measured), float(limit) if same else None, basis if same else "")

    @property
    def wait(self) -> str:
        """How long its condition must hold before it fires; empty for not at all."""
        return str(getattr(self.limits.settings, "for_", self.alert.wait))

    def _in_words(self, text: str) -> str:
        """Fill in limits that words name: ``older than <age>``."""
        return _KEY.sub(lambda match: str(getattr(self.limits.settings, match[1])), text)

    def _passed(self, way: Way, scope: Scope) -> str:
        held = self._guarded(self.condition(way)).promql(scope)
        limit = way.limit.promql(scope)
        value = f"{limit} + 0 * {bracketed(held)}" if _is_number(limit) else f"{limit}\nand {bracketed(held)}"
        for label, text in (("measured", self._in_words(way.measured)), ("basis", way.basis)):
            value = f'label_replace(\n{_indented(value)},\n  "{label}", "{text}", "", ""\n)'
        return value


def in_force(config: Config, table: tuple[Alert, ...]) -> Iterator[InForce]:
    """Yield the alerts that are switched on for any run, in the order of the table."""
    for alert in table:
        limits = Limits(config, alert.block.__name__)
        on = all(limits.base.get(key) == ON or key in limits.overridden for key in _switches(alert))
        if on:
            for severity in _severities(alert, limits):
                found = InForce(alert, severity, limits)
                if found.ways:
                    yield found


def _switches(alert: Alert) -> tuple[str, ...]:
    return tuple(filter(None, ("enabled", alert.level)))


def _severities(alert: Alert, limits: Limits) -> tuple[str, ...]:
    if alert.severity:
        return (alert.severity,)
    if "severity" in limits.overridden:
        return SEVERITIES
    return (SEVERITIES[int(limits.base["severity"])],)


def rules(config: Config, deployment: Deployment, table: tuple[Alert, ...]) -> list[dict[str, Any]]:
    """Return the rules of a table, as a rule file has them."""
    return [rule for found in in_force(config, table) for rule in _rules(found, config, deployment)]


def _rules(found: InForce, config: Config, deployment: Deployment) -> Iterator[dict[str, Any]]:
    alert, wait, facts = found.alert, found.wait, found.facts
    if facts.limit is None:
        yield {
            "record": messages.PASSED,
            "expr": found.passed(),
            "labels": {"rule": f"{alert.name}-{found.severity}"},
        }
    yield {
        "alert": alert.name,
        "expr": found.expression.promql(found.scope()),
        **({"for": wait} if wait else {}),
        **({"keep_firing_for": str(config.notify.keep_firing_for)} if alert.keep else {}),
        "labels": {"severity": found.severity, "topic": alert.topic},
        "annotations": messages.annotate(
            alert, found.severity, facts, wait, config=config, deployment=deployment
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


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).isdigit()


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
