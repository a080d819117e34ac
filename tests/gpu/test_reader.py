"""How one GPU is read: what is due when, what is asked again, what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Condition

import pytest

from exporter.gpu import worker as reader_module
from exporter.gpu.backend import (
    BackendError,
    CardError,
    Missing,
    Quantity,
    ReadError,
    Reading,
    Tier,
    UnsupportedError,
)
from exporter.gpu.worker import Reader


class Clock:
    """Stands still unless a call takes time."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Table:
    """A GPU of which a test says what each call does: a value, an error, or seconds that it takes."""

    number, uuid = 0, "uuid"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.answers: dict[str, float | Exception | Missing] = {"static": 1.0, "fast": 2.0, "slow": 3.0}
        self.takes: dict[str, float] = {}
        self.asked: Counter[str] = Counter()
        self.lost: CardError | None = None
        self.quantities = [Quantity(tier.value, tier, self._ask(tier.value)) for tier in Tier]

    def _ask(self, call: str) -> Callable[[], list[Reading | Missing]]:
        def ask() -> list[Reading | Missing]:
            self.asked[call] += 1
            self.clock.now += self.takes.get(call, 0.0)
            answer = self.answers[call]
            if isinstance(answer, Exception):
                raise answer
            return [answer if isinstance(answer, Missing) else Reading(call, answer)]

        return ask

    def find(self) -> None:
        self.asked["find"] += 1
        if self.lost:
            raise self.lost


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(reader_module, "time", clock)
    return clock


@pytest.fixture(name="card")
def _card(clock: Clock) -> Table:
    return Table(clock)


@pytest.fixture(name="reader")
def _reader(card: Table) -> Reader:
    return Reader(card, 1.0, Condition())


def read(reader: Reader, clock: Clock, seconds: int = 1) -> dict[str, float]:
    """Read each second for so long. Returns the values that are known then."""
    for _ in range(seconds):
        reader.read(clock.now)
        clock.now += 1
    return {reading.metric: reading.value for reading in reader.report.readings}


def test_static_once_fast_each_time_slow_each_fifteenth(reader: Reader, card: Table, clock: Clock) -> None:
    assert read(reader, clock, 60) == {"static": 1, "fast": 2, "slow": 3}
    assert card.asked == {"static": 1, "fast": 60, "slow": 4}


@pytest.mark.parametrize(
    ("problem", "code"),
    [(ReadError("unknown"), "unknown"), (AttributeError("no such name"), "AttributeError")],
)
def test_a_failed_call_has_no_value_is_counted_and_asked_again(
    reader: Reader, card: Table, clock: Clock, problem: Exception, code: str
) -> None:
    read(reader, clock)
    card.answers["fast"] = problem

    assert "fast" not in read(reader, clock, 3)
    assert reader.report.errors == {("fast", code): 3}
    assert reader.report.reason == "ok"
    card.answers["fast"] = 5.0
    assert read(reader, clock)["fast"] == 5


def test_a_static_value_that_failed_is_asked_for_again(reader: Reader, card: Table, clock: Clock) -> None:
    card.answers["static"] = ReadError("timeout")
    read(reader, clock)
    card.answers["static"] = 1.0

    assert read(reader, clock, 16)["static"] == 1


def test_what_is_unsupported_is_listed_and_asked_for_again_after_a_while(
    reader: Reader, card: Table, clock: Clock
) -> None:
    card.answers["fast"] = UnsupportedError("not_supported")
    read(reader, clock, 299)
    assert card.asked["fast"] == 1
    assert reader.report.missing == {"fast": "not_supported"}
    card.answers["fast"] = 2.0

    assert read(reader, clock, 2)["fast"] == 2
    assert reader.report.missing == {}


def test_a_part_that_is_missing_is_listed_while_it_is(reader: Reader, card: Table, clock: Clock) -> None:
    card.answers["fast"] = Missing("field", "not_supported")
    read(reader, clock)
    assert reader.report.missing == {"field": "not_supported"}
    card.answers["fast"] = 2.0
    read(reader, clock)

    assert reader.report.missing == {}


def test_a_lost_gpu_has_no_values_and_is_looked_for_each_fifth_time(
    reader: Reader, card: Table, clock: Clock
) -> None:
    read(reader, clock)
    card.answers["fast"] = card.lost = CardError("lost")
    card.asked.clear()

    assert read(reader, clock, 21) == {}
    assert reader.report.reason == "lost"
    assert card.asked == {"fast": 1, "find": 4}
    card.answers["fast"], card.lost = 2.0, None
    assert read(reader, clock, 5) == {"static": 1, "fast": 2, "slow": 3}
    assert reader.report.reason == "ok"


def test_a_gpu_that_was_never_there_says_why_at_once_and_is_read_when_it_is(
    card: Table, clock: Clock
) -> None:
    all_of_it, card.quantities = card.quantities, []
    card.lost = CardError("no_permission")
    reader = Reader(card, 1.0, Condition())
    read(reader, clock)
    assert reader.report.reason == "no_permission"
    card.quantities, card.lost = all_of_it, None

    assert read(reader, clock, 5) == {"static": 1, "fast": 2, "slow": 3}


@pytest.mark.parametrize("problem", [ReadError("no_data"), UnsupportedError("no_data")])
def test_a_gpu_of_which_every_call_fails_is_down(
    reader: Reader, card: Table, clock: Clock, problem: ReadError
) -> None:
    card.answers = dict.fromkeys(card.answers, problem)
    read(reader, clock)

    assert reader.report.reason == "no_data"


def test_a_lost_driver_is_reported(reader: Reader, card: Table, clock: Clock) -> None:
    card.answers["fast"] = BackendError("uninitialized")
    read(reader, clock)

    assert reader.down == "uninitialized"


def test_a_call_that_is_slow_once_stays(reader: Reader, card: Table, clock: Clock) -> None:
    read(reader, clock)
    card.takes["fast"] = 5.0
    read(reader, clock)
    card.takes["fast"] = 0.0

    assert read(reader, clock)["fast"] == 2


def test_a_call_that_is_slow_twice_is_left_out_for_longer_each_time(
    reader: Reader, card: Table, clock: Clock
) -> None:
    card.takes["fast"] = 5.0
    known = read(reader, clock, 2)
    assert "fast" not in known
    assert reader.report.missing == {"fast": "slow"}
    read(reader, clock, 600)
    assert card.asked["fast"] == 3
    read(reader, clock, 8000)

    assert card.asked["fast"] == 7
    card.takes["fast"] = 0.0
    assert read(reader, clock, 3601)["fast"] == 2


def test_a_static_value_may_take_its_time(reader: Reader, card: Table, clock: Clock) -> None:
    card.takes["static"] = 5.0
    read(reader, clock)
    card.answers["fast"] = CardError("lost")
    read(reader, clock)
    card.answers["fast"] = 2.0

    assert read(reader, clock, 6)["static"] == 1
    assert card.asked["static"] == 2


def test_a_reader_that_is_overdue_shows_nothing(reader: Reader, card: Table, clock: Clock) -> None:
    reader.read(clock.now)
    reader.begin()

    assert reader.current(2.0, 1.0) is reader.report
    late = reader.current(2.01, 1.0)
    assert (late.reason, late.readings) == ("timeout", ())
    assert reader.current(30.0, 15.0) is reader.report


def test_a_reader_that_waits_for_others_is_not_overdue(reader: Reader, clock: Clock) -> None:
    reader.read(clock.now)

    assert reader.current(4.0, 1.0) is reader.report
    assert reader.current(4.01, 1.0).reason == "timeout"


def test_before_the_first_reading_a_gpu_is_not_up(reader: Reader) -> None:
    assert reader.current(0.0, 1.0).reason == "timeout"
