"""Expressions are PromQL that Prometheus evaluates as they say."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.alerts.model.expression import Expression, Limit, Scope, Series, larger, number, size, smaller
from tests.real import PrometheusServer, query
from tests.rules import hours

VALUES: dict[str, tuple[str, str, str]] = {
    "first": ("1", "2", "3"),
    "last": ("1", "3", "2"),
    "equal": ("2", "2", "2"),
    "negative": ("-3", "-1", "-2"),
    "nan in a": ("NaN", "1", "1"),
    "nan in b": ("1", "NaN", "1"),
    "nan in c": ("1", "1", "NaN"),
    "without a": ("", "1", "1"),
    "without b": ("1", "", "1"),
    "without c": ("1", "1", ""),
}
"""Of each run the values of a, b and c; no series where there is none."""

A, B, C = (Series(name) for name in "abc")


@pytest.fixture(name="url", scope="module", params=["2.42", "3.13"])
def _url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text("global: {}\n")
    server = PrometheusServer(request.param, folder)
    now = int(time.time())
    samples = (
        f'{name}{{run="{run}",instance="{instance}"}} {value} {at}\n'
        for name, values in zip("abc", zip(*VALUES.values(), strict=True), strict=True)
        for run, value in zip(VALUES, values, strict=True)
        for instance in ("x", "y")  # two exporters that see one run
        for at in range(now - 120, now + 600, 60)
        if value
    )
    hours.load(server, samples)
    with server:
        yield server.url


def _evaluated(url: str, expression: Expression, scope: Scope | None = None) -> dict[str, float]:
    found = query(url, expression.promql(scope or Scope()))
    assert all(set(each["metric"]) == {"run"} for each in found)
    return {each["metric"]["run"]: float(each["value"][1]) for each in found}


WHOLE = {run: tuple(map(float, values)) for run, values in VALUES.items() if "" not in values}
FINITE = {run: values for run, values in WHOLE.items() if not any(map(math.isnan, values))}


def test_the_largest_and_the_smallest_of_series_are_nothing_where_one_is_missing_or_nan(url: str) -> None:
    assert _evaluated(url, larger(A, B, C)) == {run: max(values) for run, values in FINITE.items()}
    assert _evaluated(url, smaller(A, B, C)) == {run: min(values) for run, values in FINITE.items()}


def test_a_number_among_them_hides_neither_nan_nor_a_missing_series(url: str) -> None:
    bounded = {run: max(values[0], values[1], 1.5) for run, values in FINITE.items()}
    found = _evaluated(url, larger(A, 1.5, B) > -9)
    assert found == {**bounded, "nan in c": 1.5, "without c": 1.5}
    assert _evaluated(url, smaller(A, 1.5) > -9) == {
        run: min(float(values[0]), 1.5) for run, values in VALUES.items() if values[0] not in ("", "NaN")
    }


def test_an_extreme_of_numbers_alone_is_a_number() -> None:
    assert larger(1, Limit("above"), 2).promql(Scope(limit=lambda _: "3")) == "3"
    assert smaller(1, 2.5).promql(Scope()) == "1"


def test_arithmetic_is_bracketed_as_it_was_built(url: str) -> None:
    for built, expected in (
        (A - (B - C), lambda a, b, c: a - (b - c)),
        ((A - B) * 2 + C, lambda a, b, c: (a - b) * 2 + c),
        (A / (B * C), lambda a, b, c: a / (b * c)),
        (A - larger(B, C) * size(A - 4), lambda a, b, c: a - max(b, c) * abs(a - 4)),
    ):
        found = {run: value for run, value in _evaluated(url, built).items() if run in FINITE}
        assert found == {run: expected(*values) for run, values in FINITE.items()}


def test_conditions_hold_as_they_were_built(url: str) -> None:
    either = ((A > 1) | (B > 1)) & (C > 2)
    assert _evaluated(url, either) == {"first": 2.0}
    assert _evaluated(url, (A > 1) | ((B > 1) & (C > 2))) == {"first": 2.0, "equal": 2.0}
    assert _evaluated(url, (A >= 1).unless((B > 1) | (C > 1))).keys() == {
        "nan in b",
        "nan in c",
        "without b",
        "without c",
    }


def test_a_condition_may_hold_while_something_else_does(url: str) -> None:
    everything = _evaluated(url, A > -9)
    assert _evaluated(url, (A > -9).while_(Series("b", by="") > 2)) == everything
    assert _evaluated(url, (A > -9).while_(Series("b", by="") > 3)) == {}


def test_a_scope_selects_the_series_of_its_subject_and_no_others(url: str) -> None:
    both = A + B
    assert _evaluated(url, both, Scope('run="last"')) == {"last": 4.0}
    highest = (A > -9).while_(Series("b", by="") >= 3)
    assert _evaluated(url, highest, Scope('run="first"')) == {"first": 1.0}


@pytest.mark.parametrize(("value", "text"), [(1, "1"), (0.5, "0.5"), (1e-05, "1e-05"), (-2.0, "-2")])
def test_numbers_are_as_short_as_can_be(value: float, text: str) -> None:
    assert number(value) == text
    assert larger(A, value).promql(Scope()) == f"clamp_min(max by (cluster, run) (a), {text})"
