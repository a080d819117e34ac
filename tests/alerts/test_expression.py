"""The largest and the smallest of series are what Prometheus evaluates them to be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwatch.alerts.model.expression import Expression, Scope, Series, larger, smaller
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


def _evaluated(url: str, expression: Expression) -> dict[str, float]:
    found = query(url, expression.promql(Scope()))
    assert all(set(each["metric"]) == {"run"} for each in found)
    return {each["metric"]["run"]: float(each["value"][1]) for each in found}


FINITE = {run: tuple(map(float, values)) for run, values in VALUES.items() if not {"", "NaN"} & {*values}}


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
