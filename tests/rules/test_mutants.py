"""The cases notice when a rule is wrong: in a comparison, a word, a number or a time."""

from __future__ import annotations

import pytest

from tests.rules import mutation, proofs


@pytest.mark.parametrize("name", proofs.rules())
def test_each_27th_change_of_a_rule_is_noticed_or_makes_no_difference(name: str) -> None:
    assert mutation.faults(proofs.rules()[name], every=27) == []


@pytest.mark.world
@pytest.mark.parametrize("name", proofs.rules())
def test_every_change_of_a_rule_is_noticed_or_makes_no_difference(name: str) -> None:
    assert mutation.faults(proofs.rules()[name]) == []


def test_cases_and_equivalents_are_of_rules_that_exist() -> None:
    assert list(mutation.orphans()) == []


DROP = "GPUMemoryHigh-warning"


def test_a_change_that_the_cases_do_not_notice_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = proofs.rules()[DROP]
    silent = [group for group in proofs.groups(rule) if group.name in ("healthy", "just beyond the limit")]
    monkeypatch.setattr(proofs, "groups", lambda _: silent)
    # neither the limit itself nor how long the alert goes on is tested
    assert {fault.rpartition("] ")[2].removeprefix("unnoticed: ") for fault in mutation.faults(rule)} == {
        "0.95 -> >=",
        "without keep_firing_for",
        "twice as long keep_firing_for",
    }
