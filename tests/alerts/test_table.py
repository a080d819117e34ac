"""Every entry of the table is whole: its limits exist, are used and have reasons; its texts are short."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic.fields import FieldInfo

from stepwatch.alerts.model.alert import EVIDENCE, Alert
from stepwatch.alerts.model.expression import Expression, Limit, Series
from stepwatch.schema.scalars import Duration
from stepwatch.schema.section import Block, Section
from tests import real
from tests.alerts.configured import BLOCKS, TABLE, rules
from tests.rules import lints, proofs

MOST_OF_A_SUMMARY = 60
MOST_CHARACTERS = 520
MOST_QUERIES = 5

EVERYTHING = {"alerts": {name: {"enabled": True} for name in BLOCKS}}

RULES = {proofs.named(rule): rule for rule in rules(EVERYTHING) if "alert" in rule}


def _limits(alert: Alert) -> set[str]:
    """The keys of every limit that an alert takes, wherever."""
    expressions: list[Expression | None] = [alert.given, alert.sparing]
    for condition in alert.conditions:
        expressions += [
            condition.value,
            condition.limit,
            condition.given,
            condition.sparing,
            condition.drawn[1],
        ]
    parts = (part for each in expressions if each for part in each.parts())
    named = {part.key for part in parts if isinstance(part, Limit)}
    return (
        named
        | {condition.unset for condition in alert.conditions if condition.unset}
        | ({alert.level} if alert.level else set())
    )


def _fields(section: type[Section], above: str = "") -> Iterator[tuple[str, Any]]:
    """Each field by its key, those of levels included."""
    for name, field in section.model_fields.items():
        yield f"{above}{name}", field
        if isinstance(field.default, Section):
            yield from _fields(type(field.default), f"{above}{name}.")


def _defaults(block: type[Block]) -> Iterable[tuple[str, Any]]:
    """Each limit of a block with its field; neither a level nor the switch that every block has."""
    switch = Block.model_fields["enabled"]
    for key, field in _fields(block):
        if not isinstance(field.default, Section) and (key, field.default) != ("enabled", switch.default):
            yield key, field


def test_every_rule_is_of_one_entry() -> None:
    entries = [(alert.name, alert.severity) for alert in TABLE]
    assert len(set(entries)) == len(entries)
    assert len(RULES) == sum(bool(alert.conditions) for alert in TABLE)


@pytest.mark.parametrize("alert", TABLE, ids=lambda alert: f"{alert.name}-{alert.severity}")
def test_every_limit_that_an_alert_takes_is_a_key_of_its_block(alert: Alert) -> None:
    keys = dict(_fields(alert.block))
    assert _limits(alert) - keys.keys() - {"retention_time"} == set()
    if not alert.severity:
        assert "severity" in keys


@pytest.mark.parametrize("block", BLOCKS)
def test_every_limit_of_a_block_is_taken_by_an_alert(block: str) -> None:
    taken = set().union(*(_limits(alert) for alert in TABLE if alert.block is BLOCKS[block]))
    own = {key for key, _ in _defaults(BLOCKS[block])} - {"severity", "enabled", "for_"}
    assert own - taken == set()


@pytest.mark.parametrize("block", BLOCKS)
def test_every_default_has_a_reason_and_every_limit_what_it_rests_on(block: str) -> None:
    for key, field in _defaults(BLOCKS[block]):
        reason = field.description or ""
        assert reason.endswith("."), key
        if not isinstance(field.default, bool | str):
            assert [end for end in EVIDENCE if reason.endswith(f". {end}")], key


@pytest.mark.parametrize("name", RULES)
def test_a_description_is_short_and_asks_little(name: str) -> None:
    description = RULES[name]["annotations"]["description"]
    assert len(description) <= MOST_CHARACTERS
    assert description.count("query") <= MOST_QUERIES


@pytest.mark.parametrize("alert", TABLE, ids=lambda alert: f"{alert.name}-{alert.severity}")
def test_a_summary_is_a_headline(alert: Alert) -> None:
    assert 0 < len(alert.summary) <= MOST_OF_A_SUMMARY
    assert not alert.summary.endswith(".")
    assert alert.action


def test_a_state_is_not_said_with_a_value_and_a_limit() -> None:
    """As a duration it would be `refuses samples 1s, limit 1s`; of a run a value may equal its limit."""
    states = {
        alert.name
        for alert in TABLE
        if alert.subject != "run" and any(each.comparison.operator == "==" for each in alert.conditions)
    }
    assert {"ExporterDown", "RemoteWriteFailing"} <= states
    assert not {alert.name for alert in TABLE if alert.name in states and alert.style}


def test_prometheus_loads_the_rules_whatever_the_durations_of_limits(tmp_path: Path) -> None:
    spans = {
        name: {field.alias or key: "1500ms" for key, field in block.model_fields.items() if _is_span(field)}
        for name, block in BLOCKS.items()
    }
    assert spans["FabricDown"] == {"within": "1500ms", "for": "1500ms"}
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "rules", "rules": rules({"alerts": spans})}]}))
    done = subprocess.run(
        [real.prometheus("2.42").tool, "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _is_span(field: FieldInfo) -> bool:
    return isinstance(field.default, Duration)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_nothing_that_breaks_in_silence(name: str) -> None:
    assert lints.faults(RULES[name]) == []


def test_a_limit_that_moves_with_the_standard_deviation_says_so() -> None:
    for alert in TABLE:
        for condition in alert.conditions:
            limit = [part.metric for part in condition.limit.parts() if isinstance(part, Series)]
            assert ("rl_noise" in limit) == ("standard deviation so far" in condition.baseline), condition
