"""Patterns of failure: their signs exist, and the runbook says what to do about each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from stepwatch.alerts.catalogue import TABLE
from stepwatch.rules.fitting import MOST_SIGNS, SIGN, TEXT_INFO
from stepwatch.rules.messages import Entry, entries
from stepwatch.rules.patterns import MOVES, PATTERNS, Pattern
from tests.alerts.runbook import PAGE, page
from tests.rules.rendered import CHECKOUT, recorded

ALERTS = {alert.name for alert in TABLE}
DIAGNOSE = json.loads((CHECKOUT / "grafana/generated/dashboards/diagnose.json").read_text())

each_pattern = pytest.mark.parametrize("pattern", PATTERNS, ids=lambda each: each.name.replace(" ", "-"))


def evidence(pattern: Pattern) -> Iterator[str]:
    for sign in pattern.signs:
        yield from sign.evidence
    yield from pattern.against


def shown_signals() -> set[str]:
    (panel,) = (each for each in DIAGNOSE["panels"] if each["title"] == "What moved first")
    (names,) = set(re.findall(r'__name__=~"rl_\(([\w|]+)\)"', panel["targets"][0]["expr"]))
    return set(names.split("|"))


@each_pattern
def test_each_sign_is_an_alert_or_the_move_of_a_signal_that_diagnose_shows(pattern: Pattern) -> None:
    moves = {f"{signal} {move}" for signal in shown_signals() for move in MOVES}

    assert set(evidence(pattern)) <= ALERTS | moves


@each_pattern
def test_a_mark_alone_is_a_quarter_of_the_signs_at_most(pattern: Pattern) -> None:
    """Of so few the share would be above the least that is shown; of more there is no digit."""
    assert 4 <= len(pattern.signs) <= MOST_SIGNS
    assert len({sign.text for sign in pattern.signs}) == len(pattern.signs)


@each_pattern
def test_nothing_is_a_sign_of_a_pattern_and_against_it(pattern: Pattern) -> None:
    assert not {name for sign in pattern.signs for name in sign.evidence} & set(pattern.against)


@each_pattern
def test_the_runbook_says_what_a_pattern_means_what_causes_it_and_what_to_do(pattern: Pattern) -> None:
    assert all(entries(PAGE)[pattern.name])


def test_the_runbook_has_the_signs_of_the_table() -> None:
    old = PAGE.read_text().replace("| KL rises | KLHigh, KLExplosion,", "| KL rises | KLExplosion,")

    assert old != PAGE.read_text()
    assert page(old) == PAGE.read_text()


def test_each_pattern_is_recorded_with_its_signs_and_texts() -> None:
    texts = {
        rule["labels"]["pattern"]: rule["labels"] for rule in recorded("texts") if rule["record"] == TEXT_INFO
    }
    found = [rule["labels"] for rule in recorded("texts") if rule["record"] == SIGN]

    for pattern in PATTERNS:
        said = texts.pop(pattern.name)
        assert tuple(said[part] for part in Entry._fields) == entries(PAGE)[pattern.name]
        assert said["of"] == str(len(pattern.signs))
        assert [said[f"sign_{number}"] for number in range(1, len(pattern.signs) + 1)] == [
            sign.text for sign in pattern.signs
        ]
        assert [each["evidence"] for each in found if each["pattern"] == pattern.name] == list(
            evidence(pattern)
        )
    assert not texts
