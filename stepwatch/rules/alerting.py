"""The rule files of Prometheus, one for each group of the table of alerts, and what they record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from textwrap import indent
from typing import Any

import yaml

from stepwatch.alerts import promql
from stepwatch.alerts.alert import OWN_LIMIT, Alert, Condition
from stepwatch.alerts.identity import RUN, written
from stepwatch.alerts.promql import is_number, joined
from stepwatch.alerts.table import HERE, LOADER, OWN
from stepwatch.config.deployment import Deployment
from stepwatch.config.models import Config
from stepwatch.languages import ENGLISH, Catalogue, catalogue
from stepwatch.rules import messages
from stepwatch.rules.limits import ON, SEVERITIES, Limits, override
from stepwatch.rules.messages import Entry
from stepwatch.rules.subjects import SUBJECTS
from stepwatch.schema.scalars import Duration

_FINISHED = promql.expand("state(finished)", str)
_OF_RUN = "%[1]s"
"""Selects the run of a message, as a verb of ``printf``."""


@dataclass(frozen=True)
class InForce:
    """An alert with the limits of a configuration, of one severity."""

    alert: Alert
    severity: str
    limits: Limits

    def promql(self, text: str) -> str:
        """Return a text of the table as PromQL, with the limits in force."""
        return promql.expand(text, self.limits.promql)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions whose limits are set for any run."""
        replaced = self.limits.base.keys() - self.limits.overridden
        return tuple(
            each
            for each in self.alert.conditions
            if each.unset not in replaced and all(map(self.limits.known, each.keys))
        )

    @property
    def records(self) -> bool:
        """Whether its limits are series: those about runs that have a value."""
        return self.alert.subject == "run" and bool(self.alert.verb)

    def series(self, condition: Condition, matcher: str = "") -> str:
        """Return the selector of a condition's limit."""
        labels = f'alert="{self.alert.name}",severity="{self.severity}",condition="{condition.label}"'
        return f"{messages.LIMIT}{{{','.join(filter(None, (labels, matcher)))}}}"

    def drawn(self, condition: Condition, limit: str = "") -> str:
        """Return a condition's line in the panel of its signal; ``limit`` stands for its own limit."""
        if condition.line is None:
            return limit or self.promql(condition.limit)
        own = limit or promql.bracketed(self.promql(condition.limit), promql.SUM)
        return promql.expand(
            condition.line.limit, lambda key: own if key == OWN_LIMIT else self.limits.promql(key)
        )

    def limit_rule(self, condition: Condition) -> dict[str, Any]:
        """Return the rule that records a condition's limit, for each run that the alert is on for."""
        limit = self.promql(condition.limit)
        if is_number(limit):
            limit = f"{limit} + 0 * {promql.bracketed(self.promql(condition.value), promql.SUM)}"
        labels = {"alert": self.alert.name, "severity": self.severity, "condition": condition.label}
        labels |= {"signal": condition.signal} if condition.signal else {}
        return {"record": messages.LIMIT, "expr": self.switched(limit), "labels": labels}

    def held(self, condition: Condition, *, inline: bool = False) -> str:
        """Return where a condition holds, whatever the alert's guards say; ``inline``: without series."""
        if inline or not self.records:
            held = self.promql(condition.expression)
        else:
            operator = f"{condition.operator} on ({written(RUN)})"
            compared = promql.compared(self.promql(condition.value), operator, self.series(condition))
            held = self.promql(condition.where(compared))
        if condition.unset in self.limits.overridden:
            # An override may take the limit away: NaN.
            held = joined("unless", held, self.promql(f"${condition.unset} >= 0"))
        return held

    def guarded(self, *conditions: Condition, inline: bool = False) -> str:
        """Return where one of the conditions makes the alert fire: the value of the first one that holds."""
        alert, held = self.alert, joined("or", *(self.held(each, inline=inline) for each in conditions))
        if alert.given:
            held = joined("and", held, self.promql(alert.given))
        if alert.unless:
            held = joined("unless", held, self.promql(alert.unless))
        if inline or not self.records:
            held = self.switched(held)
        running_only = alert.subject == "run" and not alert.finished
        return joined("unless", held, _FINISHED) if running_only else held

    def switched(self, expression: str) -> str:
        """Leave out the runs for which an override switches the alert off, or says another severity."""
        wanted = dict.fromkeys(self.alert.switches, ON)
        if not self.alert.severity:
            wanted["severity"] = float(SEVERITIES.index(self.severity))
        for key, value in wanted.items():
            if key not in self.limits.overridden:
                continue
            own = override(f"{self.limits.block}.{key}", remembered=not self.alert.keep)
            if self.limits.base[key] != value:
                expression = joined("and", expression, f"{own} == {promql.number(value)}")
            else:
                expression = joined("unless", expression, f"{own} != {promql.number(value)}")
        return expression

    @property
    def passed(self) -> str:
        """The PromQL of the limit of the first condition that holds, labelled by the words of that."""
        found = []
        for condition in self.conditions:
            limit, held = self.promql(condition.limit), promql.bracketed(self.guarded(condition))
            value = f"{limit} + 0 * {held}" if is_number(limit) else f"{limit}\nand {held}"
            baseline = messages.in_brackets(catalogue(self.limits.config.language), condition.baseline)
            texts = {
                "condition": self._with_limits(condition.measured),
                "basis": f"{self.alert.shown_unit}{baseline}",
            }
            for label, text in texts.items():
                value = f'label_replace(\n{indent(value, "  ")},\n  "{label}", "{text}", "", ""\n)'
            found.append(value)
        return f"\nor on ({written(SUBJECTS[self.alert.subject].identity)}) ".join(found)

    @property
    def comparison(self) -> messages.Comparison:
        """What its message says of what it compares."""
        measured = tuple(dict.fromkeys(self._with_limits(each.measured) for each in self.conditions))
        if self.alert.subject == "run":
            links = tuple(
                messages.Link(
                    promql.of(self.held(each), _OF_RUN),
                    self.series(each, _OF_RUN),
                    self._with_limits(each.measured),
                    each.baseline,
                )
                for each in self.conditions
            )
            return messages.Comparison(measured, recorded=self.records, links=links)
        limits = {(self.promql(each.limit), each.baseline) for each in self.conditions}
        limit, baseline = limits.pop()
        if limits or len(measured) > 1 or not is_number(limit):
            return messages.Comparison(measured, recorded=True)
        return messages.Comparison(measured, recorded=False, limit=float(limit), baseline=baseline)

    @property
    def wait(self) -> str:
        """How long its condition must hold before it fires; empty for not at all."""
        return str(getattr(self.limits.settings, "for_", self.alert.wait))

    def _with_limits(self, text: str) -> str:
        """Fill in limits that words name: ``older than $age``."""
        return re.sub(r"\$(\w+)", lambda match: str(getattr(self.limits.settings, match[1])), text)


def in_force(config: Config, table: tuple[Alert, ...]) -> Iterator[InForce]:
    """Yield the alerts that are switched on for any run, in the order of the table."""
    for alert in table:
        limits = Limits(config, alert.block.__name__)
        if not all(limits.base.get(key) == ON or key in limits.overridden for key in alert.switches):
            continue
        if alert.severity:
            severities: tuple[str, ...] = (alert.severity,)
        elif "severity" in limits.overridden:
            severities = SEVERITIES
        else:
            severities = (SEVERITIES[int(limits.base["severity"])],)
        for severity in severities:
            found = InForce(alert, severity, limits)
            if found.conditions:
                yield found


def waits(config: Config, table: tuple[Alert, ...]) -> dict[Duration, list[str]]:
    """Return the names of the alerts whose condition must hold for some time, by that time."""
    found: dict[Duration, list[str]] = {}
    for each in in_force(config, table):
        if each.wait and (wait := Duration.parse(each.wait)).milliseconds:
            names = found.setdefault(wait, [])
            names += [each.alert.name] * (each.alert.name not in names)
    return found


def translated(table: tuple[Alert, ...], config: Config) -> tuple[Alert, ...]:
    """Return a table with its texts in the language of config.yaml."""
    if config.language == ENGLISH:
        return table
    translate = catalogue(config.language)
    return tuple(each.translated(translate.within(each.source)) for each in table)


def rules(config: Config, deployment: Deployment, table: tuple[Alert, ...]) -> list[dict[str, Any]]:
    """Return the rules of a table, as a rule file has them, with messages in the language of config.yaml."""
    said = translated(table, config)
    found = [rule for each in in_force(config, said) for rule in _rules(each, config, deployment)]
    if any(alert.subject == "run" and alert.others for alert in table if alert not in config.table.own):
        found.append({"record": messages.FIRING, "expr": _firing(config.intervals.rules)})
    return found


def _firing(interval: Duration) -> str:
    """Return what fires for each run by the last two evaluations, not what a stopped Prometheus wrote."""
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
    if found.records:
        yield from map(found.limit_rule, found.conditions)
    elif comparison.recorded:
        labels = {"alert": alert.name, "severity": found.severity}
        yield {"record": messages.LIMIT, "expr": found.passed, "labels": labels}
    yield {
        "alert": alert.name,
        "expr": found.guarded(*found.conditions),
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


def text_rules(
    table: tuple[Alert, ...], book: Mapping[str, Entry], translate: Catalogue
) -> list[dict[str, Any]]:
    """Return the rules that record what to do about each alert on runs, and what the runbook says of it."""
    actions = {alert.name: alert.action for alert in table if alert.subject == "run"}
    return [
        {
            "record": messages.TEXT_INFO,
            "expr": "vector(1)",
            "labels": {
                "alertname": name,
                "action": action,
                **{part: translate(text) for part, text in book[name]._asdict().items()},
            },
        }
        for name, action in actions.items()
        if name in book
    ]


FOLDER = PurePosixPath("prometheus/generated/rules")
_MARK = "# Generated by generate.py from {}. Do not edit: change config.yaml or that.\n"
_SLOW = "1m"
"""For machines, whose disks fill up over minutes and where the search for checkpoints looks back over a day;
and for what never changes."""


def files(config: Config, deployment: Deployment, book: Mapping[str, Entry]) -> dict[PurePosixPath, bytes]:
    """Return the content of every rule file by its path below the target folder."""
    said = translated(config.table.alerts, config)
    book = {**{each.name: Entry(each.block.__doc__ or "", "", "") for each in config.table.own}, **book}
    usual = str(config.intervals.stack_rules)
    fast = str(config.intervals.rules)
    intervals = {"rl": fast, OWN: fast, "shown": fast, "host": _SLOW, "texts": _SLOW}
    translate = catalogue(config.language)
    groups = {
        **{name: rules(config, deployment, alerts) for name, alerts in config.table.groups.items()},
        "texts": [*code_rules(said), *text_rules(said, book, translate)],
    }
    for name, found in recorded().items():
        groups[name] = [*groups.get(name, ()), *found]
    return {
        FOLDER / f"{name}.yml": _text(
            {
                "name": name,
                "interval": intervals.get(name, usual),
                "rules": [{**rule, "expr": _Code(rule["expr"])} for rule in found],
            }
        )
        for name, found in groups.items()
    }


def recorded() -> dict[str, list[dict[str, str]]]:
    """Return the rules of recorded.yaml, by group."""
    groups = yaml.load((HERE / "recorded.yaml").read_text(encoding="utf-8"), LOADER)  # noqa: S506
    return {
        name: [{"record": rule["record"], "expr": promql.expand(rule["expr"], str)} for rule in found]
        for name, found in groups.items()
    }


class _Code(str):
    """PromQL, which is written as a block of lines."""

    __slots__ = ()


_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's, ten times as fast


class _Dumper(_DUMPER):  # type: ignore[misc]
    """Writes PromQL as it reads."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" * ("\n" in text)),
)
_Dumper.add_representer(
    _Code, lambda dumper, code: dumper.represent_scalar("tag:yaml.org,2002:str", str(code), style="|")
)


def _text(group: Mapping[str, Any]) -> bytes:
    text = yaml.dump(
        {"groups": [group]}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**20, indent=2
    )
    source = "alerts.d" if group["name"] == OWN else "stepwatch/alerts"
    return (_MARK.format(source) + text).encode()
