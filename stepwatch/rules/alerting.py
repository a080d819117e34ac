"""The rule files of Prometheus, one for each group of the table of alerts, and what they record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from textwrap import indent
from typing import Any

import yaml

from stepwatch.alerts.catalogue import GROUPS, TABLE
from stepwatch.alerts.model.alert import Alert, Condition
from stepwatch.alerts.model.expression import Expression, Limit, Scope, any_of, bracketed, is_number
from stepwatch.alerts.model.identity import RUN, written
from stepwatch.alerts.model.runs import (
    checkpoint_rules,
    clock_rule,
    is_in,
    onset_rules,
    power_rule,
    recording_rule,
    state_rule,
)
from stepwatch.alerts.model.targets import agent_rules
from stepwatch.config.deployment import Deployment
from stepwatch.config.models import Config
from stepwatch.languages import ENGLISH, Catalogue, catalogue
from stepwatch.rules import messages
from stepwatch.rules.limits import ON, SEVERITIES, Limits, override
from stepwatch.rules.messages import Entry
from stepwatch.rules.subjects import SUBJECTS
from stepwatch.schema.scalars import Duration

_MATCHER = "\0"
"""A placeholder for the matcher of a run while the text around it becomes a format; no PromQL holds it."""


@dataclass(frozen=True)
class InForce:
    """An alert with the limits of a configuration, of one severity."""

    alert: Alert
    severity: str
    limits: Limits

    def scope(self, matcher: str = "") -> Scope:
        """Return what its expressions are rendered for."""
        return Scope(matcher, lambda key: self.limits.promql(key, matcher))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions whose limits are set for any run."""
        replaced = self.limits.base.keys() - self.limits.overridden
        return tuple(
            each
            for each in self.alert.conditions
            if each.unset not in replaced and all(map(self.limits.known, each.keys))
        )

    def unguarded(self, condition: Condition) -> Expression:
        """Return where a condition holds, whatever the guards of the alert say."""
        if condition.unset in self.limits.overridden:
            # An override may take the limit away: NaN.
            return condition.expression.unless(Limit(condition.unset) >= 0)
        return condition.expression

    def guarded(self, condition: Condition) -> Expression:
        """Return where a condition makes the alert fire."""
        return self._guarded(self.unguarded(condition))

    @property
    def expression(self) -> Expression:
        """Where the alert fires: the measured value of the first condition that holds."""
        return self._guarded(any_of(map(self.unguarded, self.conditions)))

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
        wanted = dict.fromkeys(self.alert.switches, ON)
        if not self.alert.severity:
            wanted["severity"] = float(SEVERITIES.index(self.severity))
        for key, value in wanted.items():
            if key not in self.limits.overridden:
                continue
            own = override(f"{self.limits.block}.{key}", remembered=not self.alert.keep)
            if self.limits.base[key] != value:
                expression = expression & own.equals(value)
            else:
                expression = expression.unless(own.differs(value))
        return expression

    @property
    def recorded_limit(self) -> str:
        """The PromQL of the limit that was passed, labelled by the words of its condition."""
        return self._passed(self.scope(), self.guarded)

    @property
    def limit_of_run(self) -> str:
        """The same about a run for which the alert fires, as a format that its matcher completes."""
        found = self._passed(self.scope(_MATCHER), self.unguarded)
        return found.replace("%", "%%").replace(_MATCHER, "%[1]s")

    def _passed(self, scope: Scope, holds: Callable[[Condition], Expression]) -> str:
        passed = []
        for condition in self.conditions:
            limit, held = condition.limit.promql(scope), bracketed(holds(condition).promql(scope))
            value = f"{limit} + 0 * {held}" if is_number(limit) else f"{limit}\nand {held}"
            measured = self._with_limits(condition.measured)
            translate = catalogue(self.limits.config.language)
            baseline = messages.in_brackets(translate, condition.baseline)
            if self.alert.subject == "run":
                texts = {"text": messages.compared(self.alert, measured, baseline, translate)}
            else:
                texts = {"measured": measured, "basis": f"{self.alert.unit}{baseline}"}
            for label, text in texts.items():
                value = f'label_replace(\n{indent(value, "  ")},\n  "{label}", "{text}", "", ""\n)'
            passed.append(value)
        return f"\nor on ({written(SUBJECTS[self.alert.subject].identity)}) ".join(passed)

    @property
    def comparison(self) -> messages.Comparison:
        """What its message says of what it compares."""
        measured = tuple(dict.fromkeys(self._with_limits(each.measured) for each in self.conditions))
        if self.alert.subject == "run":
            return messages.Comparison(measured, recorded=bool(self.alert.style))
        limits = {(each.limit.promql(self.scope()), each.baseline) for each in self.conditions}
        limit, baseline = limits.pop()
        if limits or len(measured) > 1 or not is_number(limit):
            return messages.Comparison(measured, recorded=True)
        return messages.Comparison(measured, recorded=False, limit=float(limit), baseline=baseline)

    @property
    def wait(self) -> str:
        """How long its condition must hold before it fires; empty for not at all."""
        return str(getattr(self.limits.settings, "for_", self.alert.wait))

    def _with_limits(self, text: str) -> str:
        """Fill in limits that words name: ``older than <age>``."""
        return re.sub(r"<(\w+)>", lambda match: str(getattr(self.limits.settings, match[1])), text)


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
    return tuple(
        each.translated(translate.within(each.block.__module__.rpartition(".")[2])) for each in table
    )


def rules(config: Config, deployment: Deployment, table: tuple[Alert, ...]) -> list[dict[str, Any]]:
    """Return the rules of a table, as a rule file has them, with messages in the language of config.yaml."""
    said = translated(table, config)
    found = [rule for each in in_force(config, said) for rule in _rules(each, config, deployment)]
    if any(alert.subject == "run" and alert.others for alert in table):
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
    rule = f"{alert.name}-{found.severity}"
    if comparison.recorded and alert.subject == "run":
        labels = {"rule": rule, "expr": found.limit_of_run}
        yield {"record": messages.ASKED, "expr": "vector(1)", "labels": labels}
    elif comparison.recorded:
        yield {"record": messages.PASSED, "expr": found.recorded_limit, "labels": {"rule": rule}}
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
_MARK = "# Generated by generate.py from stepwatch/alerts. Do not edit: change config.yaml or the table.\n"
_SLOW = "1m"
"""For machines, whose disks fill up over minutes and where the search for checkpoints looks back over a day;
and for what never changes."""


def files(config: Config, deployment: Deployment, book: Mapping[str, Entry]) -> dict[PurePosixPath, bytes]:
    """Return the content of every rule file by its path below the target folder."""
    said = translated(TABLE, config)
    usual = str(config.intervals.stack_rules)
    intervals = {"rl": str(config.intervals.rules), "host": _SLOW}
    groups = [
        (name, intervals.get(name, usual), rules(config, deployment, alerts) + onset_rules() * (name == "rl"))
        for name, alerts in GROUPS.items()
    ]
    translate = catalogue(config.language)
    groups += [
        ("texts", _SLOW, [*code_rules(said), *text_rules(said, book, translate)]),
        ("run_gpus", usual, [recording_rule(), clock_rule(), power_rule()]),
        # In this order: the first one sees the second one's last result.
        ("agents", usual, agent_rules()),
        ("shown", intervals["rl"], [*checkpoint_rules(), state_rule()]),
        # Six series a GPU, and none without one: the public dashboard for DCGM's exporter works.
        ("dcgm", usual, [{"record": name, "expr": text} for name, text in dcgm_rules()]),
    ]
    return {
        FOLDER / f"{name}.yml": _text(
            {
                "name": name,
                "interval": interval,
                "rules": [{**rule, "expr": _Code(rule["expr"])} for rule in found],
            }
        )
        for name, interval, found in groups
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
    return (_MARK + text).encode()


# Our GPUs under the names of NVIDIA's DCGM exporter, by rules that Prometheus records.
#
# For the public dashboard 12239, which selects by `instance` and `gpu`: what it shows, in its units.
SHOWN = {
    "DCGM_FI_DEV_GPU_TEMP": 'gpu_temperature_celsius{sensor="gpu"}',
    "DCGM_FI_DEV_POWER_USAGE": "gpu_power_watts",
    "DCGM_FI_DEV_SM_CLOCK": 'gpu_clock_hertz{domain="sm"} / 1e6',
    "DCGM_FI_DEV_GPU_UTIL": "gpu_utilization_ratio * 100",
    "DCGM_FI_DEV_FB_USED": "gpu_memory_used_bytes / 1048576",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 'gpu_pipe_active_ratio{pipe="tensor"}',
}


_NAMED = """label_replace(label_replace(label_replace(
    max by (instance, gpu, uuid, name, pci_bus_id) (gpu_info),
  "UUID", "$1", "uuid", "(.*)"), "modelName", "$1", "name", "(.*)"), "device", "nvidia$1", "gpu", "(.*)")"""
"""What each GPU is, by our labels and NVIDIA's."""


def dcgm_rules() -> Iterator[tuple[str, str]]:
    """Yield name and expression of each rule, with NVIDIA's labels, without value where DCGM is scraped."""
    for name, ours in SHOWN.items():
        expression = (
            "max by (instance, gpu, UUID, device, modelName, pci_bus_id) (\n"
            f"  {_NAMED}\n"
            f"  * on (instance, gpu, uuid) group_left () max by (instance, gpu, uuid) ({ours})\n"
            ")\n"
            f'unless on (UUID) {name}{{job!=""}}'
        )
        yield name, expression
