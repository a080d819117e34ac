"""Every entry of the table is whole: its limits exist, are used and have reasons; its texts are short."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic.fields import FieldInfo

from stepwatch.alerts.alert import EVIDENCE, Alert
from stepwatch.schema.scalars import Duration
from stepwatch.schema.section import Block, Section
from tests import real
from tests.alerts.configured import BLOCKS, TABLE, rules

MOST_OF_A_SUMMARY = 60


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
    on = {"alerts": {name: {"enabled": True} for name in BLOCKS}}
    found = [rule for rule in rules(on) if "alert" in rule]
    assert len(found) == sum(bool(alert.conditions) for alert in TABLE)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_default_has_a_reason_and_every_limit_what_it_rests_on(block: str) -> None:
    for key, field in _defaults(BLOCKS[block]):
        reason = field.description or ""
        assert reason.endswith("."), key
        if not isinstance(field.default, bool | str):
            assert [end for end in EVIDENCE.values() if reason.endswith(f". {end}")], key


@pytest.mark.parametrize("block", BLOCKS)
def test_every_limit_is_one_with_which_an_alert_compares(block: str) -> None:
    alerts = [alert for alert in TABLE if alert.block is BLOCKS[block]]
    used = {*(key for alert in alerts for key in (*alert.keys, *alert.switches)), "severity", "for_"}
    assert {key for key, _ in _defaults(BLOCKS[block])} - used == set()


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
        if alert.subject != "run" and any(each.operator == "==" for each in alert.conditions)
    }
    assert {"ExporterDown", "RemoteWriteFailing"} <= states
    assert not {alert.name for alert in TABLE if alert.name in states and alert.verb}


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


def test_a_limit_that_moves_with_the_standard_deviation_says_so() -> None:
    for alert in TABLE:
        for condition in alert.conditions:
            moves = "noise(" in condition.limit
            assert moves == ("standard deviation so far" in condition.baseline), condition
