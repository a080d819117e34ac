"""Dicts as Python prints them, whatever a terminal made of them."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.formats.console import LONGEST_DICT, MOST_DICT_LINES, Dicts, Values, pieces
from exporter.runs.signals.record import number
from tests.runs.lines import bare


def read(*lines: str) -> list[tuple[str, Values]]:
    dicts = Dicts()
    return [found for line in lines for found in dicts.parse(line)]


def values(*lines: str) -> dict[str, float | None]:
    """The numbers of the only dict that the lines hold."""
    ((_, found),) = read(*lines)
    return {key: number(value) for key, value in found.items()}


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("{'loss': 0.5}", {"loss": 0.5}),
        ("{'loss': '0.5', 'lr': '9.9e-07'}", {"loss": 0.5, "lr": 9.9e-07}),
        ("""{'loss': "0.5", "it's": 1}""", {"loss": 0.5, "it's": 1.0}),
        ("{'a': -inf, 'b': inf, 'c': 7, 'd': -0.0}", {"a": -math.inf, "b": math.inf, "c": 7.0, "d": 0.0}),
        ("{'a': np.float64(0.25), 'b': np.int64(7)}", {"a": 0.25, "b": 7.0}),
        ("{'a': True, 'b': 'text', 'c': ''}", {"a": None, "b": None, "c": None}),
        ("{'memory(GiB)': 56.74, 'it\"s': 1}", {"memory(GiB)": 56.74, 'it"s': 1.0}),
        ("{'a': [1, {'x': 2}], 'b': 3, 'c': {'d': 4}, 'e': (5,)}", {"b": 3.0}),
        ("{'a': 'it\\'s {', 'b': 3}", {"b": 3.0}),
        ("{ 'a' : 1 , 'b' : 2 }", {"a": 1.0, "b": 2.0}),
        ("{'a': tensor(0.5), 'b': array([1, 2])}", {"a": 0.5, "b": None}),
    ],
)
def test_a_dict_is_read_as_it_is_printed(printed: str, expected: dict[str, float | None]) -> None:
    assert values(printed) == expected


@pytest.mark.parametrize("written", ["nan", "'nan'", "None", "np.float64(nan)"])
def test_what_is_not_a_number_now_stays_present(written: str) -> None:
    found = values(f"{{'kl': {written}, 'loss': 0.0}}")["kl"]

    assert found is not None
    assert math.isnan(found)


def test_what_stands_before_a_dict_comes_with_it() -> None:
    assert read("a {'x': 1}b: {'y': 2} c") == [("a ", {"x": "1"}), ("b: ", {"y": "2"})]


@pytest.mark.parametrize(
    "lines",
    [
        ("step 0: {'train/loss': -2e-07,", "         'train/lr': 1e-06,", "         'n': 3}"),
        ("step 0: {'train/loss': -2e-07, 'train", "/lr': 1e-0", "6, 'n': 3}"),
        ("step 0: {'train/loss': -2e-07, 'train/lr':", " 1e-06, 'n': 3", "}"),
    ],
)
def test_a_dict_broken_over_lines_is_one(lines: tuple[str, ...]) -> None:
    assert read(*lines) == [("step 0: ", {"train/loss": "-2e-07", "train/lr": "1e-06", "n": "3"})]


def test_a_dict_that_never_ends_costs_none_that_follows() -> None:
    assert read("{'a': 1, 'b", "something else", "{'c': 2}") == [("", {"c": "2"})]


def test_an_open_dict_is_held_for_a_while_only() -> None:
    short, long = (
        ["{'a': 1,", *["'b': 2,"] * count, "'c': 3}"] for count in (MOST_DICT_LINES - 2, MOST_DICT_LINES)
    )

    assert values(*short)["c"] == 3.0
    assert read(*long) == []
    assert read("{'a': 1,", "'b': '" + "x" * LONGEST_DICT + "'}") == []


@pytest.mark.parametrize(
    "line", ["", "{}", "{1, 2}", "{'a', 'b'}", "{'a': }", "{'a' 1}", "}{", "{'a': 1; 'b': 2}", '{"a": 1}']
)
def test_what_is_not_a_dict_is_none(line: str) -> None:
    assert read(line, "") == []


def test_colours_and_rays_prefix_are_taken_off_every_piece() -> None:
    line = b"\x1b[36m(Trainer pid=12, ip=10.0.0.7)\x1b[0m {'a': 1}\r(Trainer pid=12) b\r\r"

    assert list(pieces(*bare(line))) == ["{'a': 1}", "b"]


unprintable = ("C", "Z")
names = st.text(st.characters(exclude_characters="'\"\\{}", exclude_categories=unprintable), max_size=20)


@given(st.dictionaries(names, st.floats() | st.none() | st.integers()), st.integers(min_value=0))
def test_what_python_prints_is_what_is_read(printed: dict[str, float | None], cut: int) -> None:
    text = repr(printed)
    at = max(2, cut % len(text))  # the brace and the first quote stay together
    expected = {key: repr(number(value)) for key, value in printed.items()}

    for lines in ((text,), (text[:at], text[at:])):
        found = read(*lines)
        assert [{key: repr(number(value)) for key, value in got.items()} for _, got in found] == (
            [expected] if printed else []
        )


@given(st.lists(st.text(st.sampled_from("{}'\": ,[]()\\ab1n.N\n"), max_size=80), max_size=8))
def test_random_text_never_raises(lines: list[str]) -> None:
    read(*lines)


@pytest.mark.parametrize(
    "unit",
    ["{'", "'a': ", "{'a': ", "{'a':(", "{'a' ", "{'a': 1,", "{'a':'", "{ ", "\\'", "{'a':'\\'", "{'a':b("],
)
def test_four_megabytes_take_four_times_as_long_as_one(unit: str) -> None:
    def seconds(size: int) -> float:
        lines = (unit * (size // len(unit)), "}")
        start = time.process_time()
        read(*lines)
        return time.process_time() - start

    one, four = min(seconds(1 << 20) for _ in range(2)), seconds(1 << 22)
    assert four < 12 * one + 0.2
