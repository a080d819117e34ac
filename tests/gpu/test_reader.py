"""A call that takes the driver long: once it may, twice it is left out, for longer each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Condition

import pytest

from exporter.gpu import worker as reader_module
from exporter.gpu.backend import CardError, Quantity, Reading, Tier
from exporter.gpu.worker import Reader


class Card:
    """A GPU, and the clock, which stands still unless a call takes time."""

    number, uuid = 0, "uuid"

    def __init__(self) -> None:
        self.now = 0.0
        self.takes: dict[str, float] = {}
        self.asked: Counter[str] = Counter()
        self.lost = False
        self.fails: dict[str, Exception] = {}
        self.quantities = [Quantity(tier.value, tier, self._ask(tier.value)) for tier in Tier]
        self.reader = Reader(self, 1.0, Condition())

    def monotonic(self) -> float:
        return self.now

    def _ask(self, call: str) -> Callable[[], list[Reading]]:
        def ask() -> list[Reading]:
            self.asked[call] += 1
            self.now += self.takes.get(call, 0.0)
            if self.lost:
                raise CardError("lost")
            if call in self.fails:
                raise self.fails[call]
            return [Reading(call, 2.0)]

        return ask

    def find(self) -> None:
        """It is back whenever it is looked for."""

    def read(self, seconds: int = 1) -> set[str]:
        """Read each second for so long; returns what is known then."""
        for _ in range(seconds):
            self.reader.read(self.now)
            self.now += 1
        return {reading.metric for reading in self.reader.report.readings}


@pytest.fixture(name="card")
def _card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    monkeypatch.setattr(reader_module, "time", card)
    return card


def test_a_call_that_is_slow_once_stays(card: Card) -> None:
    card.read()
    card.takes["fast"] = 5.0
    card.read()
    card.takes["fast"] = 0.0

    assert "fast" in card.read()


def test_a_call_that_is_slow_twice_is_left_out_for_longer_each_time(card: Card) -> None:
    card.takes["fast"] = 5.0
    assert "fast" not in card.read(2)
    assert card.reader.report.missing == {"fast": "slow"}
    card.read(600)
    assert card.asked["fast"] == 3
    card.read(8000)

    assert card.asked["fast"] == 7
    card.takes["fast"] = 0.0
    assert "fast" in card.read(3601)
