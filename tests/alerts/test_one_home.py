"""A limit has one home: what changes it changes every reader of it, and no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwatch.alerts import expression
from stepwatch.alerts.catalogue import BLOCKS, TABLE
from stepwatch.alerts.table import Alert, Way
from stepwatch.backtest.limits import Limit, limits
from stepwatch.backtest.rules import catalogue
from stepwatch.config import Config
from stepwatch.deployment import InContainers
from stepwatch.effective import effective
from stepwatch.rules import lines
from stepwatch.rules.alerting import rules

ON = Config.model_validate({"alerts": {name: {"enabled": True} for name in BLOCKS}})
LIMITS = {limit.key: limit for limit in limits(ON)}


def keys(drawn: expression.Expression) -> frozenset[str]:
    """The limits that a line depends on, by key within their block."""
    return frozenset(each.key for each in drawn.parts() if isinstance(each, expression.Limit))


def bound(way: Way) -> expression.Expression:
    """What the line of a way must follow: its limit, if the way measures the signal of the panel."""
    series = (part for part in way.value.parts() if isinstance(part, expression.Series))
    about = any(part.labels.get("signal") == way.signal for part in series)
    return way.limit if about or way.line is None else way.line


def reading(limit: Limit) -> Iterator[Alert]:
    """The alerts of the table that compare with a limit."""
    name, *inside = limit.path
    for alert in TABLE:
        if alert.block.__name__ == name and ".".join(inside) in alert.keys:
            yield alert


def ruled(config: Config) -> dict[tuple[str, str], list[str]]:
    """The expressions of the rules of each alert, by name and severity."""
    found: dict[tuple[str, str], list[str]] = {}
    for rule in rules(config, InContainers(), TABLE):
        if "alert" in rule:
            found.setdefault((rule["alert"], rule["labels"]["severity"]), []).append(rule["expr"])
    return found


def said(config: Config) -> dict[str, str]:
    """What the messages of each alert say of its limits: as text, or by the record that they look up."""
    found: dict[str, str] = {}
    for rule in rules(config, InContainers(), TABLE):
        name = rule.get("alert") or rule.get("labels", {}).get("rule", "").rpartition("-")[0]
        text = rule["annotations"]["description"] if "alert" in rule else rule["expr"]
        found[name] = found.get(name, "") + text
    return found


def judged(config: Config) -> dict[tuple[str, str], list[str]]:
    """The same as a backtest has them."""
    found: dict[tuple[str, str], list[str]] = {}
    for rule in catalogue(config).rules:
        found.setdefault((rule.alert, rule.severity), []).append(rule.expression)
    return found


def drawn(config: Config) -> set[tuple[str, str]]:
    """The lines of dashboards and of the light page: alert and PromQL."""
    return {(line.alert, line.promql) for line in lines.lines(config, TABLE)}


def in_force(config: Config) -> dict[str, object]:
    """The limits in force as `python -m stepwatch alerts` has them."""
    return {limit.key: limit.value for alert in effective(config, None, "") for limit in alert.limits}


BEFORE = ruled(ON), judged(ON), drawn(ON), in_force(ON)
SAID = said(ON)


@pytest.mark.parametrize("key", LIMITS)
def test_a_limit_is_changed_in_one_place_for_rule_message_line_backtest_and_command(key: str):
    limit = LIMITS[key]
    value = (limit.higher() or limit.lower())[0]
    changed, own = limit.changed(value), ".".join(limit.path[1:])
    about = list(reading(limit))
    rules_before, judged_before, drawn_before, told_before = BEFORE
    rules_now, judged_now, drawn_now, told_now = (
        ruled(changed),
        judged(changed),
        drawn(changed),
        in_force(changed),
    )

    names = {alert.name for alert in about}
    assert {name for (name, _), text in rules_now.items() if text != rules_before[name, _]} == names
    now = said(changed)
    shown = {alert.name for alert in about for way in alert.ways if own in keys(way.limit)}
    assert shown <= {name for name, text in now.items() if text != SAID[name]} <= names
    moved = {name for (name, _), text in judged_now.items() if text != judged_before[name, _]}
    assert moved == {alert.name for alert in about if alert.from_records}
    lined = {alert.name for alert in about for way in alert.ways if way.signal and own in keys(bound(way))}
    assert {name for name, _ in drawn_now ^ drawn_before} == lined
    changes = {name: each for name, each in told_now.items() if each != told_before[name]}
    assert changes == {key.removeprefix("alerts."): value}


def test_every_number_of_the_configuration_is_compared_by_an_alert():
    unread = [key for key, limit in LIMITS.items() if not list(reading(limit))]

    assert unread == []


def test_lines_of_a_signal_differ_in_name_or_severity():
    optional = {
        "KL": {"warning": {"above": 0.1}, "critical": {"above": 15}},
        "Reward": {"warning": {"below_mean_ratio": 0.2}, "critical": {"below_mean_ratio": 0.4}},
        "GradNormHigh": {"warning": {"above": 10}},
        "LengthRunaway": {"warning": {"above": 4000}},
    }
    found = lines.lines(Config.model_validate({"alerts": optional}), TABLE)
    names = [(line.signal, line.name, line.severity) for line in found]

    assert len(set(names)) == len(names)


def test_an_override_that_switches_an_alert_off_takes_its_line_from_those_runs():
    off = Config.model_validate({"overrides": [{"runs": "calm/*", "alerts": {"KL": {"enabled": False}}}]})
    (line,) = [each for each in lines.lines(off, TABLE) if each.name == "KLHigh"]

    assert 'unless max by (cluster, run) (rl_limit_override{limit="KL.enabled"' in line.promql
    assert line.promql.endswith("!= 1")
    assert not [each for each in lines.lines(off.of_run("calm/a"), TABLE) if each.alert == "KLHigh"]
