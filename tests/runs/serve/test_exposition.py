"""The page: valid exposition text, the same whether cached or rendered freshly."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.runs.model.exporter_health import Health
from exporter.runs.model.run import Clock, Options, Run
from exporter.runs.serve.metrics import RunText, page
from exporter.runs.serve.views import View
from exporter.runs.signals.record import Ended, Record, TotalSteps
from tests.runs.conftest import Watching
from tests.runs.lines import KEYS, append, console, measured
from tests.runs.scrape import Scrape


def view(name: str = "a", steps: int = 70, state: str = "running") -> View:
    run = Run("verl_jsonl", "verl", Options(hold=15.0))
    for step in range(1, steps + 1):
        run.take(Record(step, measured(step)), Clock(1e9 + step, float(step), live=True))
    return View(name, run, state, writer=None)


def scrape(*views: View) -> Scrape:
    return Scrape(page([RunText().chunks(shown, 1000.0) for shown in views], Health().samples()))


@pytest.mark.parametrize(
    ("value", "spelling"),
    [(math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (1e-6, "1e-06"), (0.5, "0.5")],
)
def test_numbers_are_spelled_as_prometheus_reads_them(value: float, spelling: str) -> None:
    run = Run("verl_jsonl", "verl", Options(hold=15.0))
    run.take(Record(1, {"actor/pg_loss": value}), Clock(1e9, 1.0, live=True))
    found = scrape(View("a", run, "running", None))

    assert f'rl_policy_loss{{run="a"}} {spelling}\n' in found.text
    assert repr(found.value("rl_policy_loss")) == repr(value)


@given(st.text(min_size=1).filter(lambda name: name.isprintable() or "\n" in name or "\\" in name))
def test_names_of_any_text_come_through(name: str) -> None:
    assert scrape(view(name, steps=1)).runs() == {
        name.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    }


def test_weird_file_names_do_not_break_the_page(folder: Path, watched: Watching) -> None:
    names = ['quo"te', "back\\slash", "new\nline", "tab\tand space", "ünïcödé 模型", "{brace}", "#", "a=b,c"]
    for name in [*names, os.fsdecode(b"\xff\xfe")]:
        append(folder / f"{name}.log", console(1, measured(1)))

    assert watched().look().runs() == {*names, r"\xff\xfe"}


# the cache

changes = st.one_of(
    st.tuples(st.just("step"), st.sampled_from(sorted(KEYS)), st.floats(-5, 5)),
    st.tuples(st.just("wait"), st.floats(0.1, 20)),
    st.tuples(st.just("state"), st.sampled_from(["running", "finished", "failed"])),
    st.tuples(st.just("writer"), st.sampled_from([True, False, None])),
    st.tuples(st.just("name"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("total"), st.integers(1, 900)),
    st.tuples(st.just("ended"), st.booleans()),
    st.tuples(st.just("resume"), st.integers(1, 50)),
    st.tuples(st.just("watched"), st.booleans()),
    st.tuples(st.just("caught up"), st.floats(1e9, 2e9)),
)


@pytest.mark.slow
@given(
    story=st.lists(changes, min_size=20, max_size=60),
    scraped=st.lists(st.booleans(), min_size=60, max_size=60),
)
@settings(max_examples=100)
def test_the_cached_text_equals_freshly_rendered_text(
    story: list[tuple[Any, ...]], scraped: list[bool]
) -> None:
    run, cached, now, step = Run("verl_jsonl", "verl", Options(hold=15.0)), RunText(), 100.0, 0
    known: dict[str, Any] = {"name": "a", "state": "running", "writer": None}
    for (what, *values), look in zip(story, scraped, strict=False):
        clock = Clock(1e9 + now, now, live=True)
        match what:
            case "step":
                step += 1
                run.take(Record(step, {KEYS[values[0]]: values[1], "perf/throughput": step}), clock)
            case "resume":
                step = max(0, step - values[0])
            case "wait":
                now += values[0]
            case "total":
                run.take(TotalSteps(values[0]), clock)
            case "ended":
                run.take(Ended("failed", certain=values[0]), clock)
            case "watched":
                run.watched = values[0]
            case "caught up":
                run.times.undated = True
                run.times.caught_up(values[0])
            case _:
                known[what] = values[0]
        if look:
            shown = View(run=run, **known)
            assert cached.chunks(shown, now) == RunText().chunks(shown, now)
