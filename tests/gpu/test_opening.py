"""GPUs are opened beside each other; one that takes its time becomes itself when it is open."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

import pytest

from exporter.gpu.backend import BackendError, CardError, Quantity, Reading, Tier
from exporter.gpu.nvml import backend
from exporter.gpu.nvml.backend import open_all

POWER = (Quantity("power", Tier.FAST, lambda: [Reading("gpu_power_watts", 1)]),)


class Opened:
    """A GPU that is open."""

    quantities: Sequence[Quantity] = POWER

    def __init__(self, number: int) -> None:
        self.number = number
        self.uuid = f"uuid{number}"
        self.lost = False

    def find(self) -> None:
        if self.lost:
            raise CardError("lost")

    def close(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "PATIENCE_SECONDS", 0.2)


def test_all_that_open_in_time_are_there_at_once_in_their_order() -> None:
    cards = open_all(3, Opened)

    assert [(type(card), card.number) for card in cards] == [(Opened, 0), (Opened, 1), (Opened, 2)]


def test_one_that_hangs_is_timed_out_until_it_is_open_and_then_is_looked_for_itself() -> None:
    ready, late = Event(), Opened(1)

    def opened(number: int) -> Opened:
        if number == 1:
            ready.wait()
            return late
        return Opened(number)

    first, second, third = open_all(3, opened)
    assert (first.uuid, second.uuid, third.uuid) == ("uuid0", "", "uuid2")
    assert not second.quantities
    assert not second.close()
    with pytest.raises(CardError) as caught:
        second.find()
    assert caught.value.code == "timeout"
    ready.set()
    second._thread.join()  # type: ignore[attr-defined]
    second.find()
    assert (second.uuid, second.quantities, second.close()) == ("uuid1", POWER, True)
    late.lost = True
    with pytest.raises(CardError) as caught:
        second.find()
    assert caught.value.code == "lost"


def test_what_ends_the_whole_connection_ends_the_opening() -> None:
    def opened(number: int) -> Opened:
        if number == 1:
            raise BackendError("uninitialized")
        return Opened(number)

    with pytest.raises(BackendError) as caught:
        open_all(3, opened)
    assert caught.value.code == "uninitialized"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_surprise_is_not_a_gpu_that_takes_its_time() -> None:
    def opened(number: int) -> Opened:
        raise AttributeError(number)

    with pytest.raises(BackendError) as caught:
        open_all(1, opened)
    assert caught.value.code == "crashed"
