"""The benchmarks start, and `docs/benchmarks.md` describes each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import reading
from benchmarks.__main__ import BENCHMARKS

DOCUMENT = Path(__file__).parents[1] / "docs/benchmarks.md"


def test_each_benchmark_is_described_and_no_other() -> None:
    described = re.findall(r"make bench ARGS=(\w+)", DOCUMENT.read_text(encoding="utf-8"))

    assert sorted(set(described)) == sorted(BENCHMARKS)


def test_a_benchmark_prints_a_table_of_what_it_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LIVE", 2)
    monkeypatch.setattr(reading, "LOOKS", 3)
    head, line, row = BENCHMARKS["look"]()

    assert head.split("|")[1].strip() == "live runs"
    assert line == "|" + "---|" * (head.count("|") - 1)
    assert re.fullmatch(r"\| 2 (\| \d+\.\d\d ){3}\| \d+\.\d times as long \|", row)
