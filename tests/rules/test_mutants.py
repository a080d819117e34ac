"""The cases notice when a rule is wrong: in a comparison, a word, a number or a time."""

from __future__ import annotations

import pytest

from tests.rules import __main__ as command
from tests.rules import mutants, mutation, proofs


@pytest.mark.parametrize("name", proofs.rules())
def test_each_27th_change_of_a_rule_is_noticed_or_makes_no_difference(name: str) -> None:
    assert mutation.judge(proofs.rules()[name], every=27).faults == []


@pytest.mark.world
@pytest.mark.parametrize("name", proofs.rules())
def test_every_change_of_a_rule_is_noticed_or_makes_no_difference(name: str) -> None:
    assert mutation.judge(proofs.rules()[name]).faults == []


def test_cases_and_equivalents_are_of_rules_that_exist() -> None:
    assert list(mutation.orphans()) == []


@pytest.mark.parametrize(
    ("expression", "changed"),
    [
        ('a{b!="1 > 2"} > 0', ['a{b!="1 > 2"} < 0', 'a{b!="1 > 2"} >= 0', 'a{b!="1 > 2"} > 0.01']),
        ("a <= 4", ["a > 4", "a < 4", "a <= 2", "a <= 4.04", "a <= 8"]),
        ("a == b", ["a != b"]),
        ("a - b", ["a + b"]),
        ("a or b and c", ["a and b and c", "a ", "a or b or c", "a or b unless c", "a or b "]),
        ("f(a unless on (x) (b and c), d)", ["f(a and on (x) (b and c), d)", "f(a , d)"]),
        ("a and b unless c or d", ["a and b or d", "a and b and c or d", "a and b unless c "]),
        ("max_over_time(a[1m])", ["min_over_time(a[1m])", "max_over_time(a[20s])", "max_over_time(a[2m])"]),
        ("a offset 5m", ["a ", "a offset 20s", "a offset 10m"]),
    ],
)
def test_mutants_of_an_expression(expression: str, changed: list[str]) -> None:
    found = [mutant.rule["expr"] for mutant in mutants.of({"expr": expression})]
    assert [each for each in changed if each not in found] == []
    assert expression not in found


def test_mutants_lack_a_time_or_have_twice_as_much_of_it() -> None:
    rule = {"expr": "a", "for": "15s", "keep_firing_for": "10m"}
    assert [mutant.rule for mutant in mutants.of(rule)] == [
        {"expr": "a", "keep_firing_for": "10m"},
        {"expr": "a", "for": "30s", "keep_firing_for": "10m"},
        {"expr": "a", "for": "15s"},
        {"expr": "a", "for": "15s", "keep_firing_for": "20m"},
    ]


DROP = "GPUMemoryHigh-warning"


def test_a_rule_without_cases_is_a_fault() -> None:
    unknown = {"alert": "Unheard", "expr": "a > 1", "labels": {"severity": "info"}}
    assert mutation.judge(unknown).faults == ["has no cases"]


def test_cases_that_a_rule_does_not_pass_prove_nothing() -> None:
    rule = proofs.rules()[DROP]
    assert mutation.judge({**rule, "for": "1h"}).faults == ["is not as its cases say"]


def test_a_change_that_the_cases_do_not_notice_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = proofs.rules()[DROP]
    silent = [group for group in proofs.groups(rule) if group.name in ("healthy", "just beyond the limit")]
    monkeypatch.setattr(proofs, "groups", lambda _: silent)
    verdict = mutation.judge(rule)
    # neither the limit itself nor how long the alert goes on is tested
    assert {mutant.what.rpartition("] ")[2] for mutant in verdict.unnoticed} == {
        "0.95 -> >=",
        "without keep_firing_for",
        "twice as long keep_firing_for",
    }
    assert len(verdict.faults) == len(verdict.unnoticed)


@pytest.mark.parametrize(
    ("part", "says"),
    [("no such change", "no longer there"), ("without for", "excuses what is noticed: without for")],
)
def test_a_false_equivalent_is_a_fault(part: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mutation.EQUIVALENTS, DROP, {part: "because"})
    faults = mutation.judge(proofs.rules()[DROP]).faults
    assert any(says in fault for fault in faults), faults


@pytest.mark.parametrize(("reasons", "code"), [({"> [0]  -> 0.01": "whole"}, 0), ({}, 1)])
def test_the_command_fails_for_a_change_that_is_not_noticed(
    reasons: dict[str, str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rule = {name: each for name, each in proofs.rules().items() if each["alert"] == "TSDBFailures"}
    monkeypatch.setattr(proofs, "rules", lambda: rule)
    monkeypatch.setattr(proofs, "cases", rule.keys)
    monkeypatch.setattr(mutation, "EQUIVALENTS", {"TSDBFailures-warning": reasons})

    assert command.main() == code
    said = capsys.readouterr().out
    assert said.startswith(
        "rule                  mutants  killed  equivalent  unnoticed\nTSDBFailures-warning       28      24"
    )
    assert ("TSDBFailures-warning: unnoticed: " in said) == bool(code)
