"""Each defect that was seen in a real Grafana, and each thing that was missing there, has a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+) \|$", (HERE / "README.md").read_text(), re.MULTILINE)
TESTS = set(
    re.findall(r"^def (test_\w+)\(", "".join(each.read_text() for each in HERE.glob("test_*.py")), re.M)
)


def test_the_table_has_each_defect_and_each_missing_thing() -> None:
    assert [int(number) for number, _, _ in ROWS] == [*range(1, 19), *range(1, 9)]


@pytest.mark.parametrize(("number", "what", "tests"), ROWS)
def test_what_was_wrong_has_tests(number: str, what: str, tests: str) -> None:
    named = re.findall(r"`(test_\w+)`", tests)

    assert named, f"{number}: {what}"
    assert set(named) <= TESTS
