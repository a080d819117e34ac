"""PromQL of the table is what Prometheus evaluates it to be: macros, limits, and what binds them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwatch.alerts import promql
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

SERIES = {
    "a": "a",
    "b": "b",
    "c": "c",
    'rl_run_state{state="running"}': "c",
    'rl_drawdown{signal="reward",alpha="0.1"}': "b",
    'rl_best{signal="reward"}': "a",
    'rl_noise{signal="reward"}': "c",
}
"""What is served, and the value that each has."""

BY_RUN = "max by (cluster, run)"
LIMITS = {"low": "0.5", "high": "2", "own": f"({BY_RUN} (b) or 1 + 0 * {BY_RUN} (a))"}


@pytest.fixture(name="url", scope="module", params=["2.42", "3.13"])
def _url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text("global: {}\n")
    server = PrometheusServer(request.param, folder)
    now = int(time.time())
    samples = (
        f"{name}{labels}{value} {at}\n"
        for series, like in SERIES.items()
        for run, values in VALUES.items()
        for instance in ("x", "y")  # two exporters that see one run
        for name, _, inside in (series.rstrip("}").partition("{"),)
        for labels in (f'{{{inside}{"," * bool(inside)}run="{run}",instance="{instance}"}} ',)
        for at in range(now - 120, now + 900, 60)
        if (value := values["abc".index(like)])
    )
    hours.load(server, samples)
    with server:
        yield server.url


def _expanded(text: str) -> str:
    return promql.expand(text, LIMITS.__getitem__)


def _evaluated(url: str, expression: str) -> dict[str, float]:
    found = query(url, expression)
    assert all(set(each["metric"]) == {"run"} for each in found)
    return {each["metric"]["run"]: float(each["value"][1]) for each in found}


FINITE = {run: tuple(map(float, values)) for run, values in VALUES.items() if not {"", "NaN"} & {*values}}


@pytest.mark.parametrize(("name", "of"), [("largest", max), ("smallest", min)])
def test_the_largest_and_the_smallest_are_nothing_where_one_is_missing_or_nan(
    name: str, of: type, url: str
) -> None:
    three = _expanded(f"{name}(by_run(a), by_run(b), by_run(c))")
    assert _evaluated(url, three) == {run: of(values) for run, values in FINITE.items()}
    bounded = {run: of(a, b, 1.5) for run, (a, b, _) in FINITE.items()} | dict.fromkeys(
        ("nan in c", "without c"), of(1, 1, 1.5)
    )
    assert _evaluated(url, f"{_expanded(f'{name}(by_run(a), 1.5, by_run(b))')} > -9") == bounded
    one = {run: of(float(a), 1.5) for run, (a, _, _) in VALUES.items() if a not in ("", "NaN")}
    assert _evaluated(url, f"{_expanded(f'{name}(by_run(a), 1.5)')} > -9") == one
    assert _expanded(f"{name}(1, 1.5, $high)") == str(of(1, 1.5, 2)).removesuffix(".0")


class Written(NamedTuple):
    """PromQL as the table has it, and with brackets around each part of it."""

    text: str
    bracketed: str


CALLS = (
    *("by_run(a)", "state(running)", "increased(b)", "lost($low, 0.1)", "suffers($low, 0.1)", "$own"),
    *("largest(by_run(a), by_run(b))", "smallest(by_run(c), $high)"),
)
OPERATORS = ("or", "and", "unless", ">", "<=", "!=", "+", "-", "*", "/")


def _rows(parts: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    """Parts with operators between them, without brackets of their own."""

    def row(first: Written, more: list[tuple[str, Written]]) -> Written:
        text, bracketed = ([f"{sign} {each[kind]}" for sign, each in more] for kind in (0, 1))
        return Written(" ".join((first.text, *text)), " ".join((first.bracketed, *bracketed)))

    return st.builds(row, parts, st.lists(st.tuples(st.sampled_from(OPERATORS), parts), max_size=3))


def _calls(parts: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    """Rows as the arguments of functions and macros."""
    rows = _rows(parts)

    def largest(one: Written, other: Written) -> Written:
        compared = f"(({one[1]}) >= ({other[1]})) or (({other[1]}) > ({one[1]}))"
        return Written(f"largest({one.text}, {other.text})", f"({compared})")

    return st.one_of(
        rows.map(lambda row: Written(f"({row.text})", f"({row.bracketed})")),
        rows.map(lambda row: Written(f"by_run({row.text})", f"({BY_RUN} ({row.bracketed}))")),
        rows.map(lambda row: Written(f"abs({row.text})", f"(abs({row.bracketed}))")),
        st.builds(largest, rows, rows),
    )


WRITTEN = st.recursive(
    st.sampled_from([Written(call, f"({_expanded(call)})") for call in CALLS]), _calls, max_leaves=6
)


@given(one=_rows(WRITTEN), other=_rows(WRITTEN))
def test_what_is_written_without_brackets_binds_as_if_each_call_and_each_limit_had_some(
    url: str, one: Written, other: Written
) -> None:
    texts = {one.text: one.bracketed, promql.compared(one.text, "<=", other.text): "<="}
    texts |= {promql.joined(word, one.text, other.text): word for word in ("or", "and", "unless")}
    for text, wanted in texts.items():
        whole = wanted if wanted == one.bracketed else f"({one.bracketed}) {wanted} ({other.bracketed})"
        assert _said(url, _expanded(text)) == _said(url, whole), text


def _said(url: str, expression: str) -> dict[str, str]:
    return {each["metric"]["run"]: each["value"][1] for each in query(url, expression)}
