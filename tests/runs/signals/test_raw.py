"""Keys that no signal uses: few, allowed ones, and what was left out is counted."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.collector import Collector, Settings
from exporter.runs.model.run import Options
from exporter.runs.signals import Reading
from exporter.runs.signals.unmapped import RawKeys, RawRule
from tests.runs.conftest import Watching
from tests.runs.lines import append, measured, verl_json
from tests.runs.scrape import Scrape


def shown(rule: RawRule, *records: dict[str, object]) -> tuple[dict[str, float], int]:
    raw = RawKeys(rule, Reading("verl"))
    for record in records:
        raw.note(record)
    return raw.values(), raw.refused


def test_numbers_without_a_signal_are_shown_under_their_own_keys(folder: Path, watched: Watching) -> None:
    append(folder / "a.jsonl", verl_json(1, measured(1) | {"env/depth": 3.5, "env/name": "maze"}))
    found = watched().look()

    assert found.value("rl_raw", run="a", key="env/depth") == 3.5
    assert found.value("rl_raw", run="a", key="env/name") is None
    assert found.value("rl_raw", run="a", key="critic/score/mean") is None
    assert found.value("rl_raw_keys_refused_total", run="a") == 0


def test_the_last_value_counts_and_a_key_that_is_logged_now_and_then_stays() -> None:
    often = [{"env/a": step} for step in range(5)]

    assert shown(RawRule(), {"env/a": 1, "val/b": 7}, *often) == ({"env/a": 4.0, "val/b": 7.0}, 0)


def test_only_what_is_allowed_is_shown_and_what_is_not_is_not_refused() -> None:
    rule = RawRule(allow=("env/*", "x?"))

    assert shown(rule, {"env/a": 1, "other/a": 2, "x1": 3, "x12": 4}) == ({"env/a": 1, "x1": 3}, 0)


@given(
    keys=st.lists(st.text(st.characters(categories=["L"]), min_size=1), unique=True), limit=st.integers(0, 9)
)
def test_the_limit_holds_and_all_beyond_it_are_counted(keys: list[str], limit: int) -> None:
    records = [{f"own/{key}": 1.0} for key in keys]
    values, refused = shown(RawRule(limit=limit), *records)

    assert len(values) <= limit
    assert len(values) + refused <= len(keys)
    if len(keys) <= 16:
        assert len(values) + refused == len(keys)


def test_a_shown_key_stays_when_others_come() -> None:
    raw = RawKeys(RawRule(limit=2), Reading("verl"))
    raw.note({"own/z": 1, "own/y": 2})
    first = raw.values()
    raw.note({"own/a": 3, "own/b": 4})

    assert (raw.values(), raw.refused) == (first, 2)


def test_the_keys_that_came_last_make_room_for_good() -> None:
    raw = RawKeys(RawRule(), Reading("verl"))
    raw.note({"own/a": 1, "own/b": 2, "own/c": 3})

    assert (raw.values(3), raw.refused) == ({"own/a": 1, "own/b": 2, "own/c": 3}, 0)
    assert (raw.values(1), raw.refused) == ({"own/a": 1}, 2)
    assert (raw.values(3), raw.refused) == ({"own/a": 1}, 2)


def test_a_key_longer_than_a_label_should_be_is_not_shown() -> None:
    assert shown(RawRule(), {"k" * 10_000: 1.0, "own/k": 2.0}) == ({"own/k": 2.0}, 0)


def test_anyone_who_asks_for_more_raw_keys_than_usual_gets_them(folder: Path) -> None:
    append(folder / "a.jsonl", verl_json(1, {f"env/{number}": number for number in range(500)}))
    watch = Collector(Settings((str(folder),), options=Options(raw=RawRule(limit=400))))
    while watch.look():
        pass

    assert len(Scrape(watch.metrics()).all("rl_raw", run="a")) == 400
