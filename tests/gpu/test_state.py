"""What the front remembers of GPUs and errors, whatever the workers say and however they end."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.gpu.state import State
from tests.gpu.exporter import nvml, reasons
from tests.runs.scrape import Scrape


def message(*cards: tuple[int, str, str], reason: str = "ok") -> dict[str, Any]:
    return {"nvml": reason, "cards": [list(card) for card in cards], "events": [], "text": ""}


def scrape(state: State, now: float = 100.0) -> Scrape:
    return Scrape(state.page(now))


@pytest.mark.parametrize(("age", "expected"), [(0, "ok"), (3, "ok"), (3.01, "timeout"), (1e6, "timeout")])
def test_nothing_older_than_three_intervals_is_shown(age: float, expected: str) -> None:
    state = State(interval=1.0)
    text = "# TYPE gpu_power_watts gauge\ngpu_power_watts 3\n"
    state.update({**message((0, "a", "ok")), "text": text}, 100.0, 1e9)
    found = scrape(state, 100.0 + age)

    assert nvml(found) == expected
    assert reasons(found) == {0: expected}
    assert found.value("gpu_power_watts") == (3 if expected == "ok" else None)


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
