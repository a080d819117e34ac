"""What the front remembers of GPUs and errors, whatever the workers say and however they end."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.gpu.backend import CRITICAL_XIDS
from exporter.gpu.families import FRONT_FAMILIES
from exporter.gpu.state import State
from tests.gpu.exporter import nvml, reasons
from tests.runs.scrape import Scrape


def message(*cards: tuple[int, str, str], reason: str = "ok") -> dict[str, Any]:
    return {"nvml": reason, "cards": [list(card) for card in cards], "events": [], "text": ""}


def scrape(state: State, now: float = 100.0) -> Scrape:
    return Scrape(state.page(now))


def box_with(*cards: tuple[int, str, str], reason: str = "ok") -> State:
    state = State(interval=1.0)
    state.update(message(*cards, reason=reason), 100.0, 1e9)
    return state


def test_before_the_first_word_it_is_starting_and_not_ready() -> None:
    state = State(interval=1.0)

    assert nvml(scrape(state, 1e6)) == "starting"
    assert not state.ready
    assert scrape(state).value("gpu_exporter_last_collect_timestamp_seconds") is None


@pytest.mark.parametrize(("age", "expected"), [(0, "ok"), (3, "ok"), (3.01, "timeout"), (1e6, "timeout")])
def test_nothing_older_than_three_intervals_is_shown(age: float, expected: str) -> None:
    state = State(interval=1.0)
    text = "# TYPE gpu_power_watts gauge\ngpu_power_watts 3\n"
    state.update({**message((0, "a", "ok")), "text": text}, 100.0, 1e9)
    found = scrape(state, 100.0 + age)

    assert nvml(found) == expected
    assert reasons(found) == {0: expected}
    assert found.value("gpu_power_watts") == (3 if expected == "ok" else None)


def test_a_missing_driver_does_not_grow_old() -> None:
    assert nvml(scrape(box_with(reason="driver_not_loaded"), 1e6)) == "driver_not_loaded"


def test_why_no_one_speaks_is_said_until_someone_does() -> None:
    state = box_with((0, "a", "ok"))
    state.silence = "crashed"

    assert nvml(scrape(state, 103.0)) == "ok"
    assert nvml(scrape(state, 104.0)) == "crashed"
    state.update(message((0, "a", "ok")), 105.0, 1e9)
    assert nvml(scrape(state, 110.0)) == "timeout"


def test_a_gpu_without_a_name_is_the_one_that_had_its_number() -> None:
    state = box_with((0, "a", "ok"), (1, "b", "ok"))
    state.update(message((0, "a", "ok"), (1, "", "lost")), 100.0, 1e9)

    assert scrape(state).value("gpu_up", gpu="1", uuid="b", reason="lost") == 0
    assert len(scrape(state).all("gpu_up")) == 2


def test_a_gpu_that_is_no_longer_listed_is_lost_though_another_took_its_number() -> None:
    state = box_with((0, "a", "ok"), (1, "b", "ok"), (2, "c", "ok"))
    state.update(message((0, "a", "ok"), (1, "c", "ok")), 100.0, 1e9)
    found = scrape(state)

    assert found.value("gpu_up", uuid="b", reason="lost") == 0
    assert found.value("gpu_up", uuid="c", gpu="1") == 1
    assert (found.value("gpu_devices"), found.value("gpu_devices_expected")) == (2, 3)
    assert not state.well


def test_the_critical_xid_errors_of_each_gpu_stand_at_zero() -> None:
    found = scrape(box_with((0, "a", "ok"), (1, "b", "lost")))

    assert len(found.all("gpu_xid_errors_total", gpu="1", uuid="b")) == len(CRITICAL_XIDS)
    assert set(found.all("gpu_xid_errors_total").values()) == {0}


def test_errors_are_counted_over_workers() -> None:
    state = box_with((0, "a", "ok"))
    state.count([["a", 79, 5.0], ["a", 79, 7.0]])
    state.update(message((0, "a", "lost")), 101.0, 1e9)
    state.count([["a", 13, 9.0]])
    found = scrape(state)

    assert found.value("gpu_xid_errors_total", gpu="0", uuid="a", xid="79") == 2
    assert found.value("gpu_xid_last_timestamp_seconds", gpu="0", uuid="a", xid="79") == 7
    assert found.value("gpu_xid_errors_total", gpu="0", uuid="a", xid="13") == 1


CARDS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["ok", "lost", "timeout"]), max_size=6)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), CARDS), min_size=1, max_size=12), st.integers(0, 4))
def test_every_gpu_ever_seen_has_one_state_and_no_value_is_made_up(
    said: list[dict[str, str] | None], age: int
) -> None:
    state, seen, most = State(interval=1.0), set[str](), 0
    for cards in said:
        if cards is None:
            state.update(message(reason="driver_not_loaded"), 100.0, 1e9)
            continue
        reported = [(number, uuid, cards[uuid]) for number, uuid in enumerate(sorted(cards))]
        state.update(message(*reported), 100.0, 1e9)
        seen, most = seen | set(cards), max(most, len(cards))
    found = scrape(state, 100.0 + age)
    fresh = age <= 3 and said[-1] is not None
    up = {dict(labels)["uuid"]: value for labels, value in found.all("gpu_up").items()}

    assert set(up) == seen
    assert len(up) == len(found.all("gpu_up"))
    assert {uuid for uuid, value in up.items() if value} == {
        uuid for uuid, reason in (said[-1] or {}).items() if fresh and reason == "ok"
    }
    assert found.value("gpu_devices_expected") == most
    assert found.value("gpu_devices") == (len(said[-1] or {}) if fresh else 0)
    assert all(math.isfinite(value) for value in found.samples.values())


def test_every_family_has_a_name_of_its_own() -> None:
    names = [family.name for family in FRONT_FAMILIES]
    assert len(names) == len(set(names))
