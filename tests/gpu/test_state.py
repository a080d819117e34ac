"""What is remembered of GPUs, whatever the driver says of them, and for how long values are shown."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.gpu.backend import Call, CardError, Reading, Settings, Tier
from exporter.gpu.demo import Demo
from tests.gpu.box import Box
from tests.gpu.exporter import nvml, reasons
from tests.runs.scrape import Scrape


class Named:
    """A card of this name; ``why`` it cannot be read, if it cannot."""

    def __init__(self, uuid: str, why: str) -> None:
        self.uuid, self.why = uuid, why
        self.calls = [Call("GetPowerUsage", Tier.FAST, self.read)]

    def read(self, _: object) -> list[Reading]:
        if self.why != "ok":
            raise CardError(self.why)
        return [Reading("gpu_power_watts", 3)]

    def find(self) -> None:
        """It never was lost."""


class Listed(Demo):
    """A backend that lists what ``said`` says."""

    said: dict[str, str]

    def open(self) -> tuple[int, dict[str, str]]:
        return len(self.said), {}

    def card(self, number: int) -> Any:
        return Named(*sorted(self.said.items())[number])


@pytest.mark.parametrize(("age", "expected"), [(0, "ok"), (3, "ok"), (3.01, "timeout"), (1e6, "timeout")])
def test_nothing_older_than_three_intervals_is_shown(age: float, expected: str) -> None:
    backend = Listed(Settings())
    backend.said = {"a": "ok"}
    box = Box(backend, interval=1.0)
    box.page(100.0, 1e9)
    found = Scrape(box.gpus.page(100.0 + age))

    assert nvml(found) == "ok"
    assert reasons(found) == {0: expected}
    assert found.value("gpu_power_watts") == (3 if expected == "ok" else None)


CARDS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["ok", "lost", "timeout"]), max_size=6)


@settings(deadline=None)
@given(st.lists(CARDS, min_size=1, max_size=12), st.integers(0, 4))
def test_every_gpu_ever_seen_has_one_state_and_no_value_is_made_up(
    said: list[dict[str, str]], age: int
) -> None:
    backend, seen, most = Listed(Settings()), set[str](), 0
    backend.said = {}
    box = Box(backend, interval=1.0)
    for cards in said:
        backend.said = cards
        box.readers = box.gpus.open(backend)
        box.gpus.show(box.readers)
        box.page(100.0, 1e9)
        seen, most = seen | set(cards), max(most, len(cards))
    found = Scrape(box.gpus.page(100.0 + age))
    up = {dict(labels)["uuid"]: value for labels, value in found.all("gpu_up").items()}

    assert set(up) == seen
    assert len(up) == len(found.all("gpu_up"))
    assert {uuid for uuid, value in up.items() if value} == {
        uuid for uuid, reason in said[-1].items() if age <= 3 and reason == "ok"
    }
    assert found.value("gpu_devices_expected") == most
    assert found.value("gpu_devices") == len(said[-1])
    assert all(math.isfinite(value) for value in found.samples.values())
