"""What a rule compares is read off its expression."""

from __future__ import annotations

import pytest

from stepwatch.backtest.expression import counts_time, reads, ways


def _told(expression: str) -> list[tuple[str, tuple[str, ...], bool]]:
    return [(way.value, way.limits, way.over) for way in ways(expression)]


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("a > 2", [("a{}", ("2",), True)]),
        ("a < 0.5 * b", [("a{}", ("0.5 * b{}",), False)]),
        ("a - b > 2", [("a{}", ("2 + b{}",), True)]),
        ("a > 1 or b > 2", [("a{}", ("1",), True), ("b{}", ("2",), True)]),
        ("a > 1 and b > 2", [("a{}", ("1",), True)]),
        ("a > 1 and a > b", [("a{}", ("1", "b{}"), True)]),
        ("a > 1 and a < b", [("a{}", ("1",), True)]),
        (
            "max by (run) (a > 1 or b > 1) unless on (run) (c == 1)",
            [("a{}", ("1",), True), ("b{}", ("1",), True)],
        ),
    ],
)
def test_each_way_to_fire_has_its_value_and_its_limits(
    expression: str, told: list[tuple[str, tuple[str, ...], bool]]
) -> None:
    assert _told(expression) == told


def test_the_condition_of_a_way_holds_all_that_must_hold_with_it() -> None:
    first, second = ways("(a > 1 or b > 1) and c > 1 unless on (run) (d == 1)")
    for way, mine, other in ((first, "a{} > 1", "b{}"), (second, "b{} > 1", "a{}")):
        assert mine in way.condition
        assert other not in way.condition
        assert "c{} > 1" in way.condition
        assert "unless on (run) (d{} == 1)" in way.condition.replace("((", "(").replace("))", ")")


@pytest.mark.parametrize(
    ("expression", "clock"),
    [
        ("a > 1", False),
        ("time() - a > 1", True),
        ("max_over_time(a[5m]) > 1", True),
        ("a - a offset 5m > 1", True),
        ("a > 1 unless b < time() - 2", True),
    ],
)
def test_rules_that_count_the_time_of_a_clock_are_known(expression: str, *, clock: bool) -> None:
    assert counts_time(expression) is clock


def test_the_metrics_of_an_expression_are_known() -> None:
    assert reads("max by (run) (a) > 2 * b unless on () (max_over_time(c[5m]))") == {"a", "b", "c"}
